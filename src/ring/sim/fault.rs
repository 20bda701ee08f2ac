//! Planned faults: the n-th operation of some kind fails, once or for ever, or is short.
//!
//! Every operation and every file system call passes [`Plan::judge`] when it is carried out, so a test that first
//! counts a workload's operations can then let each of them fail in turn.

bitflags::bitflags! {
    /// Kinds of operations, for counting and choosing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Class: u32 {
        /// Reads.
        const READ = 1;
        /// Writes.
        const WRITE = 2;
        /// Syncs, of files and directories, whole or data only.
        const SYNC = 4;
        /// Time-outs.
        const TIMEOUT = 8;
        /// Opening, and making, files and directories.
        const OPEN = 16;
        /// Listing directories.
        const LIST = 32;
        /// Renaming.
        const RENAME = 64;
        /// Removing names.
        const UNLINK = 128;
        /// Asking for a file's length.
        const META = 256;
        /// Setting a file's length.
        const SET_LEN = 512;
        /// Taking locks.
        const LOCK = 1024;
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It fails with this (positive) error number. A write that fails with EIO may have left some of its sectors; a
    /// sync that fails, other than by EINTR, EAGAIN or ECANCELED, marks its pages clean.
    Errno(i32),
    /// A transfer is one byte short (one sector on a direct file). Other operations are left alone.
    ShortByOne,
    /// A transfer moves half of its bytes. Other operations are left alone.
    ShortByHalf,
}

/// One planned fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Which operations count.
    pub class: Class,
    /// Only those on files whose name contains this; empty: all.
    pub name: String,
    /// Which of them goes wrong, from 1.
    pub nth: u64,
    /// And all after it.
    pub for_ever: bool,
    /// What goes wrong.
    pub effect: Effect,
}

impl Fault {
    /// The `nth` operation (from 1) of these classes goes wrong, once.
    pub fn once(class: Class, nth: u64, effect: Effect) -> Self {
        Fault { class, name: String::new(), nth, for_ever: false, effect }
    }

    /// The `nth` operation (from 1) of these classes and all after it go wrong.
    pub fn for_ever(class: Class, nth: u64, effect: Effect) -> Self {
        Fault { for_ever: true, ..Fault::once(class, nth, effect) }
    }

    /// Only for files whose name contains this.
    #[must_use]
    pub fn on(self, name: &str) -> Self {
        Fault { name: name.to_owned(), ..self }
    }
}

/// The planned faults, and how many operations there were.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    faults: Vec<(Fault, u64)>,
    counts: [u64; 11],
    fired: u64,
}

impl Plan {
    /// Adds a fault; it counts from now on.
    pub fn add(&mut self, fault: Fault) {
        self.faults.push((fault, 0));
    }

    /// Takes all faults out; counting goes on.
    pub fn clear(&mut self) {
        self.faults.clear();
    }

    /// How many operations of these classes there were.
    pub fn count(&self, class: Class) -> u64 {
        let indices = class.iter().map(|one| one.bits().trailing_zeros() as usize);
        indices.filter_map(|index| self.counts.get(index)).sum()
    }

    /// How many operations went wrong by plan.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// Counts one operation (of one class) and says what goes wrong with it. `name` is asked for only when a fault
    /// depends on it.
    pub fn judge(&mut self, class: Class, name: impl Fn() -> String) -> Option<Effect> {
        if let Some(count) = self.counts.get_mut(class.bits().trailing_zeros() as usize) {
            *count += 1;
        }
        let mut effect = None;
        for (fault, seen) in &mut self.faults {
            if fault.class.contains(class) && (fault.name.is_empty() || name().contains(&fault.name)) {
                *seen += 1;
                if *seen == fault.nth || (fault.for_ever && *seen > fault.nth) {
                    effect = effect.or(Some(fault.effect));
                }
            }
        }
        self.fired += u64::from(effect.is_some());
        effect
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_of_its_class_and_file_goes_wrong() {
        let mut plan = Plan::default();
        plan.add(Fault::once(Class::WRITE | Class::SYNC, 2, Effect::Errno(5)));
        plan.add(Fault::for_ever(Class::READ, 2, Effect::ShortByOne).on(".wal"));
        let log = || "1.wal".to_owned();
        let answers = [
            plan.judge(Class::WRITE, log),
            plan.judge(Class::READ, log),
            plan.judge(Class::SYNC, log),
            plan.judge(Class::SYNC, log),
            plan.judge(Class::READ, || "LOCK".to_owned()),
            plan.judge(Class::READ, log),
            plan.judge(Class::READ, log),
        ];
        let (short, error) = (Some(Effect::ShortByOne), Some(Effect::Errno(5)));
        assert_eq!(answers, [None, None, error, None, None, short, short]);
        assert_eq!((plan.count(Class::READ), plan.count(Class::all()), plan.fired()), (4, 7, 3));
    }
}

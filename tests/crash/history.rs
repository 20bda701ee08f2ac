//! What was asked and answered, and which states of the store may follow from it.
//!
//! Every client has keys of its own and waits for each answer, so what of its writes is there must be a prefix of
//! them (without those that were refused), at least as long as was acknowledged. Clients are held together by time:
//! what had been acknowledged to one, at whatever level, before another began a write that is there, is there too,
//! because sequence and log position are one order.

use std::collections::BTreeMap;

use iouring_engine::base::{Error, error::code};
use iouring_engine::engine::Level;

/// Keys and values.
pub type State = BTreeMap<Vec<u8>, Vec<u8>>;
/// The changes of one write.
pub type Edits = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// How a crash treats what isn't synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// What was only in memory is gone: the process's and the kernel's.
    Power,
    /// What the kernel had is there.
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Running,
    Done,
    Refused,
    Unknown,
}

#[derive(Debug, Clone)]
struct Write {
    edits: Edits,
    level: Level,
    outcome: Outcome,
    began: u64,
    ended: u64,
}

#[derive(Debug, Clone, Default)]
struct Client {
    writes: Vec<Write>,
    /// So many of its writes were covered by a flush that succeeded.
    flushed: usize,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct History {
    clock: u64,
    base: State,
    clients: Vec<Client>,
    /// When a write failed without a clean refusal: every write that begins later must fail.
    broken: Option<u64>,
}

fn apply(state: &mut State, edits: &Edits) {
    for (key, value) in edits {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
}

/// The client that a key belongs to: its first byte.
pub fn key(client: usize, name: u8) -> Vec<u8> {
    vec![client as u8, name]
}

fn of_client(state: &State, client: usize) -> State {
    state.iter().filter(|(key, _)| key[0] as usize == client).map(|(k, v)| (k.clone(), v.clone())).collect()
}

impl History {
    /// Nothing done yet, on a store that holds `base`.
    pub fn new(clients: usize, base: State) -> Self {
        History { base, clients: vec![Client::default(); clients], ..History::default() }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A client asks for a write.
    pub fn begin(&mut self, client: usize, edits: Edits, level: Level) -> usize {
        let began = self.tick();
        let writes = &mut self.clients[client].writes;
        writes.push(Write { edits, level, outcome: Outcome::Running, began, ended: u64::MAX });
        writes.len() - 1
    }

    /// The answer to it, and whether the store says that it is poisoned. An answer that mustn't be is an error.
    pub fn end(
        &mut self,
        client: usize,
        index: usize,
        answer: &Result<(), Error>,
        poisoned: bool,
    ) -> Result<(), String> {
        let now = self.tick();
        let write = &mut self.clients[client].writes[index];
        write.ended = now;
        write.outcome = match answer {
            Ok(()) if self.broken.is_some_and(|broken| write.began > broken) => {
                return Err(format!("{write:?} succeeded although an earlier write failed for good"));
            }
            Ok(()) => Outcome::Done,
            // The system's own answer is a refusal before anything was written.
            Err(e) if e.errno().is_some() || e.code() == code::POISONED => Outcome::Refused,
            Err(e) if e.code() == code::INDETERMINATE => Outcome::Unknown,
            Err(e) => return Err(format!("{write:?} was answered by {}: {e}", e.code())),
        };
        match answer {
            // A weaker write that a full disk refused is kept, and nothing is poisoned.
            Err(e) if e.code() == code::INDETERMINATE && !poisoned && write.level != Level::Durable => {}
            Err(e) if e.errno().is_none() => drop(self.broken.get_or_insert(now)),
            _ => {}
        }
        Ok(())
    }

    /// Whether a write failed for good.
    pub fn broken(&self) -> bool {
        self.broken.is_some()
    }

    /// What a flush that begins now will have made durable.
    pub fn flush_begins(&self) -> Vec<usize> {
        self.clients
            .iter()
            .map(|c| c.writes.iter().take_while(|w| w.outcome != Outcome::Running).count())
            .collect()
    }

    /// That flush succeeded.
    pub fn flush_ends(&mut self, covered: &[usize]) {
        for (client, covered) in self.clients.iter_mut().zip(covered) {
            client.flushed = client.flushed.max(*covered);
        }
    }

    /// What a client reads now, when nothing of its own is running. None when an outcome is unknown.
    pub fn visible(&self, client: usize) -> Option<State> {
        let writes = &self.clients[client].writes;
        let known = writes.iter().all(|w| matches!(w.outcome, Outcome::Done | Outcome::Refused));
        known.then(|| self.after(client, writes.len()))
    }

    fn after(&self, client: usize, prefix: usize) -> State {
        let mut state = of_client(&self.base, client);
        for write in &self.clients[client].writes[..prefix] {
            if write.outcome != Outcome::Refused {
                apply(&mut state, &write.edits);
            }
        }
        state
    }

    fn floor(&self, client: usize, loss: Loss) -> usize {
        let client = &self.clients[client];
        let kept = |write: &Write| {
            let level = match loss {
                Loss::Power => write.level == Level::Durable,
                Loss::Kill => write.level != Level::Volatile,
            };
            write.outcome == Outcome::Done && level
        };
        let acknowledged = client.writes.iter().rposition(kept).map_or(0, |index| index + 1);
        acknowledged.max(client.flushed)
    }

    /// Whether this state may follow a crash.
    pub fn check(&self, found: &State, loss: Loss) -> Result<(), String> {
        let mut ranges = Vec::new();
        for client in 0..self.clients.len() {
            let writes = &self.clients[client].writes;
            let mine = of_client(found, client);
            let floor = self.floor(client, loss);
            let fits: Vec<usize> =
                (floor..=writes.len()).filter(|p| self.after(client, *p) == mine).collect();
            let (Some(least), Some(most)) = (fits.first(), fits.last()) else {
                return Err(format!(
                    "client {client}: {} follows from no prefix of at least {floor} of\n{}",
                    show(&mine),
                    self.show(client)
                ));
            };
            ranges.push((*least, *most));
        }
        self.check_order(&ranges)
    }

    fn check_order(&self, ranges: &[(usize, usize)]) -> Result<(), String> {
        for (client, (least, _)) in ranges.iter().enumerate() {
            let there = self.clients[client].writes[..*least].iter().rfind(|w| w.outcome != Outcome::Refused);
            let Some(there) = there else { continue };
            for (other, (_, most)) in ranges.iter().enumerate() {
                let before = |w: &Write| w.outcome == Outcome::Done && w.ended < there.began;
                let needed = self.clients[other].writes.iter().rposition(before).map_or(0, |index| index + 1);
                if *most < needed {
                    return Err(format!(
                        "client {other} lost its write {needed}, which was visible before {there:?} of client \
                         {client} began, and that one is there\n{}",
                        self.show(other)
                    ));
                }
            }
        }
        Ok(())
    }

    /// All there is, for a message.
    pub fn show_all(&self) -> String {
        (0..self.clients.len()).map(|client| format!("client {client}:\n{}", self.show(client))).collect()
    }

    fn show(&self, client: usize) -> String {
        let line = |w: &Write| {
            let edits: Vec<String> = w.edits.iter().map(show_edit).collect();
            format!("  {:?} {:?} {}..{}: {}\n", w.outcome, w.level, w.began, w.ended, edits.join(", "))
        };
        let base = show(&of_client(&self.base, client));
        let writes: String = self.clients[client].writes.iter().map(line).collect();
        format!("  base {base}\n{writes}")
    }
}

fn show_edit((key, value): &(Vec<u8>, Option<Vec<u8>>)) -> String {
    let name = key.get(1).map_or('?', |b| *b as char);
    match value {
        Some(value) => format!("{name}={}", show_value(value)),
        None => format!("{name} deleted"),
    }
}

fn show_value(value: &[u8]) -> String {
    let head = String::from_utf8_lossy(value.split(|b| *b == b' ').next().unwrap_or(&[])).into_owned();
    format!("{head}({} bytes)", value.len())
}

fn show(state: &State) -> String {
    let entries: Vec<String> = state.iter().map(|(k, v)| show_edit(&(k.clone(), Some(v.clone())))).collect();
    format!("{{{}}}", entries.join(", "))
}

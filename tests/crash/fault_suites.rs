//! The suites over the faults, and what single faults must lead to.

use iouring_engine::base::Error;
use iouring_engine::engine::Level;
use iouring_engine::ring::sim::fault::{Class, Effect, Fault};
use iouring_engine::ring::sim::{World, crash};
use iouring_engine::wal::sync::Wish;

use super::faults::{SEED, count, script, sweep};
use super::history::{Loss, State};
use super::machine::{Action, Setup, recover, run};

const IO: Class = Class::READ.union(Class::WRITE).union(Class::SYNC);

/// The setups under which faults are tried.
fn setups() -> Vec<Setup> {
    [Wish::Syscall, Wish::Linked, Wish::Dsync].map(|sync| Setup { sync, ..Setup::SMALL }).to_vec()
}

fn sweep_all(class: Class) {
    for setup in setups() {
        let tried = sweep(setup, class).unwrap_or_else(|e| panic!("{e}"));
        println!("{setup:?}, {class:?}: {tried} faults");
    }
}

#[test]
fn a_write_that_fails() {
    sweep_all(Class::WRITE);
}

#[test]
fn a_sync_that_fails() {
    sweep_all(Class::SYNC);
}

#[test]
fn a_read_that_fails() {
    sweep_all(Class::READ);
}

#[test]
fn a_file_system_call_that_fails() {
    for class in
        [Class::OPEN, Class::LIST, Class::RENAME, Class::UNLINK, Class::META, Class::SET_LEN, Class::LOCK]
    {
        if count(Setup::SMALL, class) > 0 {
            sweep_all(class);
        }
    }
}

#[test]
fn any_operation_that_fails() {
    sweep(Setup::SMALL, IO).unwrap_or_else(|e| panic!("{e}"));
}

/// A store with some records, as a kill left it.
fn filled() -> (World, State) {
    let world = World::calm(SEED);
    let ran = run(&world, Setup::SMALL, &[script()], State::new()).unwrap();
    assert!(ran.opening.is_none() && ran.closing.is_none());
    let world = world.kill();
    let state = recover(&world.fork(1), Setup::SMALL, 1, true).unwrap();
    assert!(!state.is_empty());
    (world, state)
}

#[test]
fn a_read_that_fails_in_recovery_refuses_and_says_where() {
    let (world, state) = filled();
    let counted = world.fork(2);
    recover(&counted, Setup::SMALL, 1, false).unwrap();
    let reads = counted.count(Class::READ);
    assert!(reads > 0);
    for nth in 1..=reads {
        for fault in [
            Fault::once(Class::READ, nth, Effect::Errno(libc::EIO)),
            Fault::for_ever(Class::READ, nth, Effect::Errno(libc::EIO)),
        ] {
            let world = world.fork(2);
            world.add_fault(fault.clone());
            match recover(&world, Setup::SMALL, 1, true) {
                Ok(found) => assert_eq!(found, state, "{fault:?}: a read error was taken for the end"),
                Err(e) => {
                    assert!(e.contains(".wal") && e.contains("offset"), "{fault:?}: no place in {e:?}");
                    world.clear_faults();
                    assert_eq!(recover(&world.fork(3), Setup::SMALL, 1, true).unwrap(), state, "{fault:?}");
                }
            }
        }
    }
}

#[test]
fn a_full_disk_refuses_and_writes_resume_when_there_is_space() {
    let setup = Setup { keeper: true, ..Setup::SMALL };
    let fill = |name: u8| Action::Put(name, 9000);
    for space in (0..40).map(|pages| pages * 4096) {
        let world = World::calm(SEED);
        let first = run(&world, setup, &[vec![Action::Put(b'a', 8)]], State::new()).unwrap();
        let state = recover(&world, setup, 1, true).unwrap();
        assert!(first.opening.is_none() && state.len() == 1);
        world.set_space(Some(world.used_space() + space));
        let full: Vec<Action> = [b'b', b'c'].into_iter().cycle().take(12).map(fill).collect();
        let ran = run(&world, setup, &[full], state.clone()).unwrap_or_else(|e| panic!("{space} bytes: {e}"));
        assert!(ran.opening.is_none(), "{space} bytes free: a full disk can be opened: {:?}", ran.opening);
        assert!(!ran.history.broken(), "{space} bytes free: nothing is poisoned");
        world.set_space(None);
        let found = recover(&world, setup, 1, true).unwrap();
        ran.history.check(&found, Loss::Power).unwrap();
        let again = run(&world, setup, &[vec![fill(b'b'), Action::Put(b'c', 1)]], found).unwrap();
        let found = recover(&world.power_loss(&mut crash::nothing()), setup, 1, true).unwrap();
        again.history.check(&found, Loss::Power).unwrap();
        assert_eq!(found.len(), 3);
    }
}

#[test]
fn writes_resume_by_themselves_while_the_store_is_open() {
    let world = World::calm(SEED);
    let io = world.io();
    io.block_on(async {
        use iouring_engine::engine::batch::Edit;
        let core = super::machine::open(&io, &Setup::SMALL).await.unwrap();
        let put = |key: u8, len: usize| {
            let (io, core) = (io.clone(), core.clone());
            async move { core.apply(&io, Edit::Put { key: &[key], value: &vec![key; len] }, Level::Durable).await }
        };
        put(1, 10).await.unwrap();
        world.set_space(Some(world.used_space()));
        let mut refused = Vec::new();
        for key in 2..12 {
            match put(key, 9000).await {
                Ok(()) => {}
                Err(e) => {
                    assert_eq!(e.errno(), Some(libc::ENOSPC), "{e}");
                    refused.push(key);
                }
            }
        }
        assert!(!refused.is_empty(), "the disk never got full");
        for key in &refused {
            assert!(matches!(core.get_with(&[*key], |_| ()), Err(Error::NotFound)), "a refused put shows");
        }
        assert_eq!(core.get_with(&[1], <[u8]>::len).unwrap(), 10, "reads go on");
        world.set_space(None);
        put(100, 9000).await.unwrap();
        assert_eq!(core.get_with(&[100], <[u8]>::len).unwrap(), 9000);
        super::machine::close(&io, &core).await.unwrap();
    })
    .unwrap();
}

#[test]
fn a_failed_sync_poisons_and_reads_go_on() {
    let setup = Setup { segment_bytes: 16 * 4096, ..Setup::SMALL };
    let world = World::calm(SEED);
    let io = world.io();
    io.block_on(async {
        use iouring_engine::engine::batch::Edit;
        let core = super::machine::open(&io, &setup).await.unwrap();
        let put = |key: u8| {
            let (io, core) = (io.clone(), core.clone());
            async move { core.apply(&io, Edit::Put { key: &[key], value: b"v" }, Level::Durable).await }
        };
        put(1).await.unwrap();
        let visible = core.commit().visible();
        world.add_fault(Fault::once(Class::SYNC, 1, Effect::Errno(libc::EIO)).on("1.wal"));
        let answer = put(2).await;
        assert!(matches!(answer, Err(Error::Indeterminate(_))), "{answer:?}");
        for key in 3..6 {
            assert!(matches!(put(key).await, Err(Error::Poisoned(_))));
        }
        assert!(core.flush(&io).await.is_err(), "a flush can't succeed any more");
        assert_eq!(core.commit().visible(), visible, "visible stands still");
        assert_eq!(core.property("poisoned").unwrap(), "1");
        assert_eq!(core.get_with(&[1], <[u8]>::to_vec).unwrap(), b"v", "reads go on");
        for key in 2..6 {
            assert!(matches!(core.get_with(&[key], |_| ()), Err(Error::NotFound)));
        }
        let syncs = world.count(Class::SYNC);
        let _ = super::machine::close(&io, &core).await;
        assert_eq!(world.count(Class::SYNC), syncs, "a file whose sync failed is never synced again");
        let again = super::machine::open(&io, &setup).await.unwrap();
        assert_eq!(again.get_with(&[1], <[u8]>::to_vec).unwrap(), b"v");
        again.apply(&io, Edit::Put { key: &[2], value: b"w" }, Level::Durable).await.unwrap();
        super::machine::close(&io, &again).await.unwrap();
    })
    .unwrap();
}

//! The handle table under explored schedules: no use after close, no second close, no foreign object.
//!
//! `cargo test --features shuttle --test shuttle_handle`; SHUTTLE_SCHEDULES says how many schedules each test tries.
#![cfg(feature = "shuttle")]
#![allow(unsafe_code, reason = "a type behind handles promises that its kind is its own")]

use iouring_engine::base::Error;
use iouring_engine::base::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use iouring_engine::base::sync::{Arc, thread};
use iouring_engine::ffi::handle::{Claim, Kind, Object, Table};

const PROCESS: u32 = 1;

/// Notices when it is used after its end.
struct Probe {
    number: u64,
    gone: Arc<AtomicBool>,
    inside: AtomicU64,
}

// SAFETY: the one type of this kind in this test.
unsafe impl Object for Probe {
    const KIND: Kind = Kind::Engine;
    const SHARED: bool = true;
}

impl Probe {
    fn new(number: u64) -> (Self, Arc<AtomicBool>) {
        let gone = Arc::new(AtomicBool::new(false));
        (Probe { number, gone: gone.clone(), inside: AtomicU64::new(0) }, gone)
    }

    fn use_it(&self, number: u64) {
        assert_eq!(self.number, number, "a handle reached another object");
        assert!(!self.gone.load(SeqCst), "used after its end");
        self.inside.fetch_add(1, SeqCst);
        thread::yield_now();
        assert!(!self.gone.load(SeqCst), "ended while in use");
        self.inside.fetch_sub(1, SeqCst);
    }

    fn use_alone(&self, number: u64) {
        assert_eq!(self.inside.load(SeqCst), 0, "not alone");
        self.use_it(number);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        assert_eq!(self.inside.load(SeqCst), 0, "freed while in use");
        self.gone.store(true, SeqCst);
    }
}

fn explore(body: impl Fn() + Send + Sync + 'static) {
    let schedules =
        std::env::var("SHUTTLE_SCHEDULES").ok().map(|n| n.parse().expect("SHUTTLE_SCHEDULES is a number"));
    let schedules = schedules.unwrap_or(2_000);
    let body = std::sync::Arc::new(body);
    let random = body.clone();
    // Both print the schedule that failed.
    shuttle::check_random(move || random(), schedules / 2);
    shuttle::check_pct(move || body(), schedules - schedules / 2, 3);
}

fn stale(error: &Error) -> bool {
    matches!(error, Error::Stale(_))
}

#[test]
fn a_shared_object_ends_after_the_last_call_and_once() {
    explore(|| {
        let table = Arc::new(Table::new());
        let (probe, gone) = Probe::new(1);
        let handle = table.insert(PROCESS, probe).unwrap();
        let users = (0..2).map(|_| {
            let table = table.clone();
            thread::spawn(move || {
                let slot = table.take_slot();
                for _ in 0..2 {
                    match table.share::<Probe>(slot, PROCESS, handle) {
                        Ok(probe) => probe.use_it(1),
                        Err(e) => assert!(stale(&e)),
                    }
                }
                table.give_slot_back(slot);
            })
        });
        let closers = (0..2).map(|_| {
            let table = table.clone();
            let gone = gone.clone();
            thread::spawn(move || {
                let slot = table.take_slot();
                let closed = table.take_shared::<Probe>(slot, PROCESS, handle);
                let count = u64::from(closed.is_ok());
                assert!(!gone.load(SeqCst) || count == 0);
                drop(closed);
                // The place is used again at once, under a new handle.
                let (probe, _) = Probe::new(2);
                let second = table.insert(PROCESS, probe).unwrap();
                assert_ne!(second, handle);
                table.share::<Probe>(slot, PROCESS, second).unwrap().use_it(2);
                drop(table.take_shared::<Probe>(slot, PROCESS, second).unwrap());
                table.give_slot_back(slot);
                CLOSED.fetch_add(count, SeqCst);
            })
        });
        static CLOSED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        CLOSED.store(0, SeqCst);
        let all: Vec<_> = users.chain(closers.collect::<Vec<_>>()).collect();
        for one in all {
            one.join().unwrap();
        }
        assert!(gone.load(SeqCst));
        assert_eq!(CLOSED.load(SeqCst), 1, "closed exactly once");
    });
}

#[test]
fn an_exclusive_object_has_one_user_at_a_time() {
    explore(|| {
        let table = Arc::new(Table::new());
        let (probe, gone) = Probe::new(1);
        let handle = table.insert(PROCESS, probe).unwrap();
        let users = [Claim::Wait, Claim::Refuse].map(|claim| {
            let table = table.clone();
            thread::spawn(move || {
                let slot = table.take_slot();
                match table.own::<Probe>(slot, PROCESS, handle, claim) {
                    Ok(probe) => probe.use_alone(1),
                    Err(Error::Busy(_)) => assert_eq!(claim, Claim::Refuse),
                    Err(e) => assert!(stale(&e)),
                }
                table.give_slot_back(slot);
            })
        });
        let closers = [0, 1].map(|_| {
            let table = table.clone();
            thread::spawn(move || {
                let slot = table.take_slot();
                let closed = table.take_owned::<Probe>(slot, PROCESS, handle, |_| Ok(()));
                let closed = closed.map(|(probe, orphaned)| {
                    assert!(!orphaned);
                    drop(probe);
                });
                assert!(closed.is_ok() || closed.is_err_and(|e| stale(&e)));
                // The place is used again at once: claims of the old handle that come late don't disturb its new object.
                let (probe, _) = Probe::new(2);
                let second = table.insert(PROCESS, probe).unwrap();
                table.own::<Probe>(slot, PROCESS, second, Claim::Refuse).unwrap().use_alone(2);
                drop(table.take_owned::<Probe>(slot, PROCESS, second, |_| Ok(())).unwrap());
                table.give_slot_back(slot);
            })
        });
        for one in users.into_iter().chain(closers) {
            one.join().unwrap();
        }
        assert!(gone.load(SeqCst));
    });
}

#[test]
fn a_bound_object_is_its_owner_s_until_the_owner_ends() {
    explore(|| {
        let table = Arc::new(Table::new());
        let (probe, gone) = Probe::new(1);
        let handle = table.insert(PROCESS, probe).unwrap();
        let owners = [0, 1].map(|_| {
            let table = table.clone();
            thread::spawn(move || {
                let slot = table.take_slot();
                let mut mine = false;
                for round in 0..2 {
                    match table.own::<Probe>(slot, PROCESS, handle, Claim::Bind) {
                        Ok(probe) => {
                            assert!(mine || round == 0, "bound late");
                            mine = true;
                            probe.use_alone(1);
                        }
                        Err(Error::WrongThread(_)) => assert!(!mine),
                        Err(e) => assert!(!mine && stale(&e), "{e}"),
                    }
                }
                table.give_slot_back(slot);
            })
        });
        let closer = {
            let table = table.clone();
            thread::spawn(move || {
                let slot = table.take_slot();
                loop {
                    match table.take_owned::<Probe>(slot, PROCESS, handle, |_| Ok(())) {
                        Ok((probe, _)) => {
                            drop(probe);
                            break;
                        }
                        Err(e) => assert!(matches!(e, Error::WrongThread(_))),
                    }
                    thread::yield_now();
                }
                table.give_slot_back(slot);
            })
        };
        for one in owners {
            one.join().unwrap();
        }
        closer.join().unwrap();
        assert!(gone.load(SeqCst));
    });
}

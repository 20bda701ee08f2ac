//! What the reactor costs above bare io-uring: 4 KiB reads from the page cache into registered buffers, 64 pending,
//! through a registered file; the same flags on both rings, round by round.
//!
//! `cargo bench --bench reactor [-- --rounds N]`. Prints nanoseconds of CPU per read and the difference of the medians.
#![allow(clippy::disallowed_methods, reason = "a measurement makes its own file")]
#![allow(unsafe_code, reason = "the bare ring is driven as its crate asks")]

use std::cell::RefCell;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::rc::Rc;

use io_uring::{IoUring, opcode, types};
use iouring_engine::base::memory::{Buf, Region};
use iouring_engine::ring::client::{Client, Outbox};
use iouring_engine::ring::completion::Completion;
use iouring_engine::ring::driver::Wait;
use iouring_engine::ring::op::{Op, Target};
use iouring_engine::ring::options::{Choice, RingOptions, open_driver};
use iouring_engine::ring::reactor::{Reactor, Sink};

const BLOCK: usize = 4096;
const DEPTH: usize = 64;
const BLOCKS: u64 = 4096;
const READS: u64 = 100_000;

fn offset(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % BLOCKS * BLOCK as u64
}

/// CPU time of this thread: other processes on a shared machine don't count.
fn cpu_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

struct Bare {
    ring: IoUring,
    region: std::sync::Arc<Region>,
}

impl Bare {
    fn new(fd: i32) -> Self {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(DEPTH as u32)
            .expect("io_uring is needed for this measurement");
        ring.submitter().register_files(&[fd]).expect("registering the file");
        let region = Region::new(DEPTH * BLOCK).expect("memory");
        let vectors: Vec<libc::iovec> = (0..DEPTH)
            .map(|i| libc::iovec { iov_base: region.as_ptr().wrapping_add(i * BLOCK).cast(), iov_len: BLOCK })
            .collect();
        // SAFETY: the region outlives the ring's use of it: every read has completed when a round ends.
        unsafe { ring.submitter().register_buffers(&vectors) }.expect("registering the buffers");
        Bare { ring, region }
    }

    fn push(&mut self, index: usize, at: u64) {
        let pointer = self.region.as_ptr().wrapping_add(index * BLOCK);
        let entry = opcode::ReadFixed::new(types::Fixed(0), pointer, BLOCK as u32, index as u16)
            .offset(at)
            .build()
            .user_data(index as u64);
        // SAFETY: the registered memory lives as long as `self`.
        unsafe { self.ring.submission().push(&entry) }.expect("the queue holds the depth");
    }

    fn round(&mut self, reads: u64) -> f64 {
        let (mut state, mut sent, mut done) = (7, 0, 0);
        let start = cpu_ns();
        for index in 0..DEPTH {
            self.push(index, offset(&mut state));
            sent += 1;
        }
        while done < reads {
            self.ring.submit_and_wait(1).expect("entering the ring");
            while let Some(entry) = { self.ring.completion().next() } {
                assert_eq!(entry.result(), BLOCK as i32);
                done += 1;
                if sent < reads {
                    self.push(entry.user_data() as usize, offset(&mut state));
                    sent += 1;
                }
            }
        }
        (cpu_ns() - start) / reads as f64
    }
}

/// Buffers whose read has completed.
#[derive(Default)]
struct Ready(Vec<usize>);

impl Client for Ready {
    fn complete(&mut self, outbox: &mut Outbox, user_data: u64, completion: Completion, _: Option<Op>) {
        assert_eq!(completion.result, BLOCK as i32);
        outbox.ready += 1;
        self.0.push(user_data as usize);
    }
}

struct Ours {
    reactor: Reactor,
    region: std::sync::Arc<Region>,
    client: Rc<RefCell<Ready>>,
    id: iouring_engine::ring::client::ClientId,
}

impl Ours {
    fn new(fd: i32) -> Self {
        let options = RingOptions { driver: Choice::Uring, entries: DEPTH as u32, ..RingOptions::default() };
        let (driver, _) = open_driver(&options).expect("io_uring is needed for this measurement");
        let mut reactor = Reactor::new(driver);
        reactor.make_slots(1).expect("file slots");
        reactor.set_slot(0, Some(fd)).expect("setting the slot");
        let region = Region::new(DEPTH * BLOCK).expect("memory");
        let places: Vec<(usize, usize)> =
            (0..DEPTH).map(|i| (region.as_ptr() as usize + i * BLOCK, BLOCK)).collect();
        reactor.driver().register_buffers(&places).expect("registering the buffers");
        let client = Rc::new(RefCell::new(Ready::default()));
        let id = reactor.add_client(client.clone());
        Ours { reactor, region, client, id }
    }

    fn push(&mut self, index: usize, at: u64) {
        let pointer =
            NonNull::new(self.region.as_ptr().wrapping_add(index * BLOCK)).expect("memory is not null");
        // SAFETY: the region lives as long as `self`, and each index has one read under way.
        let buf = unsafe { Buf::outside(pointer, BLOCK) };
        let op = Op::Read { target: Target::Slot(0), buf, offset: at, buffer_index: Some(index as u16) };
        self.reactor.submit(op, Sink::Client(self.id, index as u64));
    }

    fn round(&mut self, reads: u64) -> f64 {
        let (mut state, mut sent, mut done) = (7, 0, 0);
        let mut ready = Vec::with_capacity(DEPTH);
        let start = cpu_ns();
        for index in 0..DEPTH {
            self.push(index, offset(&mut state));
            sent += 1;
        }
        while done < reads {
            self.reactor.turn(Wait::Forever).expect("a turn");
            std::mem::swap(&mut ready, &mut self.client.borrow_mut().0);
            self.reactor.reaped(ready.len());
            for index in ready.drain(..) {
                done += 1;
                if sent < reads {
                    self.push(index, offset(&mut state));
                    sent += 1;
                }
            }
        }
        (cpu_ns() - start) / reads as f64
    }
}

fn main() {
    let mut arguments = std::env::args().skip_while(|a| a != "--rounds").skip(1);
    let rounds = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(41usize).max(1);
    let path = std::env::temp_dir().join(format!("reactor-bench-{}", std::process::id()));
    let mut file =
        std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
    std::fs::remove_file(&path).expect("removing the file's name");
    file.write_all(&vec![7; BLOCKS as usize * BLOCK]).expect("filling the file");
    let (mut bare, mut ours) = (Bare::new(file.as_raw_fd()), Ours::new(file.as_raw_fd()));
    let (mut bares, mut reactors, mut extra) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let (b, r) = (bare.round(READS), ours.round(READS));
        println!("round {round}: bare {b:.0} ns  reactor {r:.0} ns  difference {:.0} ns", r - b);
        bares.push(b);
        reactors.push(r);
        extra.push(r - b);
    }
    println!(
        "median: bare {:.0} ns  reactor {:.0} ns  difference {:.0} ns per read",
        median(bares),
        median(reactors),
        median(extra)
    );
}

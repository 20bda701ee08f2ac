//! What the reactor and the driver cost over bare io-uring: 4 KiB reads of one file from the page cache.
//!
//! `cargo run --release --example ring_cost [FILE [DEPTH [OPERATIONS [ROUNDS]]]]`. Both sides keep DEPTH reads in
//! flight, with the same set-up flags and the same offsets, in turns; the best round of each counts, since
//! whatever else runs on the machine only adds.
#![allow(unsafe_code, reason = "the bare side is the io-uring crate as it is")]
#![allow(clippy::disallowed_methods, reason = "a measuring program makes its own file")]

use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::rc::Rc;

use io_uring::{IoUring, opcode, types};
use iouring_engine::base::memory::Buf;
use iouring_engine::ring::client::{Client, Outbox};
use iouring_engine::ring::completion::Completion;
use iouring_engine::ring::driver::{Driver, Entry, Wait};
use iouring_engine::ring::op::{File, Link, Op, Target};
use iouring_engine::ring::options::{Choice, RingOptions, open_driver};
use iouring_engine::ring::reactor::{Reactor, Sink};

const BLOCK: usize = 4096;

struct Run {
    file: File,
    blocks: u64,
    depth: usize,
    operations: usize,
}

impl Run {
    /// Offsets spread over the file, the same for all sides.
    fn offset(&self, n: usize) -> u64 {
        (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.blocks * BLOCK as u64
    }

    fn driver(&self) -> Driver {
        let options =
            RingOptions { driver: Choice::Uring, entries: self.depth as u32, ..RingOptions::default() };
        open_driver(&options).expect("a ring").0
    }

    fn bare(&self) -> f64 {
        let mut ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(self.depth as u32 * 4)
            .build(self.depth as u32)
            .expect("a ring");
        let mut buffers: Vec<Buf> = (0..self.depth).map(|_| Buf::zeroed(BLOCK).expect("memory")).collect();
        let fd = types::Fd(self.file.raw_fd());
        let mut free: Vec<usize> = (0..self.depth).collect();
        let (mut started, mut done) = (0, 0);
        let start = cpu_ns();
        while done < self.operations {
            let mut queue = ring.submission();
            while let Some(place) = free.pop().filter(|_| started < self.operations) {
                let pointer = buffers[place].as_mut_slice().as_mut_ptr();
                let read = opcode::Read::new(fd, pointer, BLOCK as u32).offset(self.offset(started)).build();
                // SAFETY: the buffer stays until its completion, which is awaited below.
                unsafe { queue.push(&read.user_data(place as u64)) }.expect("room");
                started += 1;
            }
            drop(queue);
            ring.submit_and_wait(1).expect("the kernel takes them");
            for completion in ring.completion() {
                assert_eq!(completion.result(), BLOCK as i32);
                free.push(completion.user_data() as usize);
                done += 1;
            }
        }
        (cpu_ns() - start) as f64 / self.operations as f64
    }

    fn driven(&self) -> f64 {
        let mut driver = self.driver();
        driver.bind().expect("bound");
        let token = |place: usize| iouring_engine::base::slab::Key { index: place as u32, generation: 1 };
        let mut ops: Vec<Op> =
            (0..self.depth).map(|_| self.read(Buf::zeroed(BLOCK).expect("memory"), 0)).collect();
        let mut free: Vec<usize> = (0..self.depth).collect();
        let (mut started, mut done) = (0, 0);
        let start = cpu_ns();
        while done < self.operations {
            while let Some(place) = free.pop().filter(|_| started < self.operations) {
                if let Op::Read { offset, .. } = &mut ops[place] {
                    *offset = self.offset(started);
                }
                let entry = Entry { token: token(place), op: &ops[place], done: 0, link: Link::None };
                assert!(driver.push(&[entry]));
                started += 1;
            }
            driver.enter(Wait::Forever).expect("the kernel takes them");
            while let Some(completion) = driver.next() {
                assert_eq!(completion.result, BLOCK as i32);
                free.push(completion.token.index as usize);
                done += 1;
            }
        }
        (cpu_ns() - start) as f64 / self.operations as f64
    }

    fn read(&self, buf: Buf, n: usize) -> Op {
        Op::Read { target: Target::File(self.file.clone()), buf, offset: self.offset(n), buffer_index: None }
    }

    fn reacted(&self) -> f64 {
        let mut reactor = Reactor::new(self.driver());
        let free = Rc::new(RefCell::new(Free(Vec::new())));
        let client = reactor.add_client(free.clone());
        free.borrow_mut().0.extend((0..self.depth).map(|_| Buf::zeroed(BLOCK).expect("memory")));
        let (mut started, mut done) = (0, 0);
        let start = cpu_ns();
        while done < self.operations {
            while started < self.operations {
                let Some(buf) = free.borrow_mut().0.pop() else { break };
                reactor.submit(self.read(buf, started), Sink::Client(client, started as u64));
                started += 1;
            }
            reactor.turn(Wait::Forever).expect("the kernel takes them");
            let ready = reactor.ready();
            reactor.reaped(ready);
            done += ready;
        }
        (cpu_ns() - start) as f64 / self.operations as f64
    }
}

/// A client that only takes its memory back.
struct Free(Vec<Buf>);

impl Client for Free {
    fn complete(&mut self, outbox: &mut Outbox, _: u64, completion: Completion, op: Option<Op>) {
        assert_eq!(completion.result, BLOCK as i32);
        self.0.extend(op.and_then(Op::into_buf));
        outbox.ready += 1;
    }
}

/// Processor time of this thread, which other programs on the machine disturb less than they do a clock.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let named = arguments.next().filter(|name| !name.is_empty());
    let mut number =
        |default: usize| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (depth, operations, rounds) = (number(64), number(200_000), number(25));
    let file = match named {
        Some(path) => File::from_fd(std::fs::File::open(path).expect("the file").into()),
        None => {
            let path = std::env::temp_dir().join(format!("ring-cost-{}", std::process::id()));
            std::fs::write(&path, vec![1; 64 << 20]).expect("room for 64 MiB");
            let file = std::fs::File::open(&path).expect("the file");
            std::fs::remove_file(&path).expect("just made");
            File::from_fd(file.into())
        }
    };
    let blocks = rustix::fs::fstat(file.os()).expect("its length").st_size as u64 / BLOCK as u64;
    assert!(blocks > 0, "the file has at least {BLOCK} bytes");
    let run = Run { file, blocks, depth, operations };
    let mut best = [f64::INFINITY; 3];
    for _ in 0..rounds {
        for (best, nanoseconds) in best.iter_mut().zip([run.bare(), run.driven(), run.reacted()]) {
            *best = best.min(nanoseconds);
        }
    }
    let [bare, driven, reacted] = best;
    println!("4 KiB reads from the page cache, {depth} in flight, descriptor {}", run.file.os().as_raw_fd());
    println!("bare io-uring  {bare:7.1} ns of processor time per read");
    println!("driver         {driven:7.1} ns  ({:+.1})", driven - bare);
    println!("reactor        {reacted:7.1} ns  ({:+.1})", reacted - bare);
}

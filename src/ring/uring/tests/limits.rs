//! Where there is no io_uring, or too little locked memory: the reason is named, and AUTO goes on without.

use super::*;
use crate::base::Error;
use crate::ring::driver::Kind;
use crate::ring::probe::{Capabilities, FEATURES};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::unix::process::CommandExt;

const CHILD: &str = "IOE_TEST_MEMLOCK_CHILD";

/// An ordinary user; root isn't charged for locked memory.
const NOBODY: u32 = 65534;

#[test]
fn a_ring_gets_smaller_when_locked_memory_is_short() {
    if std::env::var_os(CHILD).is_some() {
        return with_little_locked_memory();
    }
    let name = "ring::uring::tests::limits::a_ring_gets_smaller_when_locked_memory_is_short";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").current_dir("/");
    if rustix::process::geteuid().is_root() {
        child.uid(NOBODY).gid(NOBODY);
    }
    let output = child.output().expect("the test program can be run by an ordinary user");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

fn with_little_locked_memory() {
    let limit = |bytes| setrlimit(Resource::Memlock, Rlimit { current: Some(bytes), maximum: Some(1 << 20) });
    limit(1 << 20).unwrap();
    {
        let (mut driver, granted) = bound(&options(SetupFlags::empty(), 32_768));
        assert!(granted.entries < 32_768 && granted.cq_entries >= granted.entries, "{granted:?}");
        let note = &granted.notes[0];
        for words in ["instead of 32768", "RLIMIT_MEMLOCK", "1024 KiB", "ulimit -l"] {
            assert!(note.contains(words), "{note:?} lacks {words:?}");
        }
        let op = read_op(&memory_file(b"abc"), 3, 0);
        assert!(driver.push(&[single(1, &op)]));
        assert_eq!(reap(&mut driver, 1)[0].result, 3);
        let big = Buf::zeroed(4 << 20).unwrap();
        let error = driver.register_buffers(&[(0, 0), (big.as_ptr() as usize, big.len())]).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.errno(), Some(libc::ENOMEM), "{text}");
        assert!(text.contains("buffer 1 at") && text.contains("RLIMIT_MEMLOCK"), "{text}");
    }
    limit(0).unwrap();
    let none = open_driver(&options(SetupFlags::empty(), 64)).unwrap_err();
    assert_eq!(none.errno(), Some(libc::ENOMEM));
    assert!(none.to_string().contains("RLIMIT_MEMLOCK"), "{none}");
    falls_back("RLIMIT_MEMLOCK");
}

/// AUTO goes on with the POSIX driver and says why, except for what only io_uring has.
fn falls_back(reason: &str) {
    let auto = RingOptions::default();
    let (_, granted) = open_driver(&auto).unwrap();
    assert_eq!(granted.kind, Kind::Posix);
    assert!(granted.notes[0].contains(reason), "{:?}", granted.notes);
    let sqpoll = RingOptions { flags: SetupFlags::SQPOLL, ..auto };
    assert!(open_driver(&sqpoll).unwrap_err().to_string().contains(reason));
}

/// Makes the calling thread's `io_uring_setup` fail.
fn forbid_io_uring(errno: i32) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut filter = [
        // The system call's number comes first in `seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is alive for the calls, which concern the calling thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn a_filter_or_an_old_kernel_is_named_and_auto_goes_on_without() {
    for (errno, reason) in [(libc::EPERM, "seccomp"), (libc::ENOSYS, "ENOSYS")] {
        let thread = std::thread::spawn(move || {
            forbid_io_uring(errno);
            match open_driver(&options(SetupFlags::empty(), 8)) {
                Err(Error::Unsupported(text)) => assert!(text.contains(reason), "{text}"),
                other => panic!("{other:?}"),
            }
            falls_back(reason);
            let found = Capabilities::probe();
            for feature in FEATURES {
                assert!(found.of(feature).unwrap_err().contains(reason), "{feature:?}");
            }
        });
        thread.join().unwrap();
    }
}

//! The ring object over both of its drivers.

use super::*;

#[test]
fn a_timeout_is_reaped_under_its_name() {
    for driver in [crate::ring::options::Choice::Uring, crate::ring::options::Choice::Posix] {
        let options = RingOptions { driver, ..RingOptions::default() };
        let mut ring = RingObject::open(&options, &TableOptions::default()).unwrap();
        ring.timeout(1, 7).unwrap();
        assert_eq!(ring.wait(1, -1).unwrap(), 1);
        let mut out = [RingCompletion::EMPTY; 2];
        assert_eq!(ring.reap(&mut out).unwrap(), 1);
        assert_eq!((out[0].user_data, out[0].result), (7, -libc::ETIME));
    }
}

//! Chains: order, soft and hard links, all or nothing.

use iouring_engine::base::Error;
use iouring_engine::ring::driver::Kind;
use iouring_engine::ring::io::join;
use iouring_engine::ring::op::{Link, Op};

use crate::stage::{Stage, read_op, sync_op, write_op};

use Link::{Hard, None, Soft};

const CANCELLED: i32 = -libc::ECANCELED;

pub fn a_chain_runs_in_order(stage: &Stage) {
    let file = stage.calm().file("a");
    for round in 0..20u8 {
        let pending = stage
            .io
            .submit_chain(vec![
                (write_op(&file, 0, &[round; 700]), Soft),
                (sync_op(&file), Soft),
                (write_op(&file, 300, &[round + 100; 700]), Soft),
                (read_op(&file, 0, 1000), None),
            ])
            .unwrap();
        let mut done = stage.run(join(pending));
        let results: Vec<i32> = done.iter().map(|(result, _)| *result).collect();
        assert_eq!(results, [700, 0, 700, 1000]);
        let buf = done.pop().and_then(|(_, op)| op.into_buf()).unwrap();
        assert_eq!(buf.as_slice()[..300], [round; 300]);
        assert_eq!(buf.as_slice()[300..], [round + 100; 700]);
    }
}

pub fn an_error_cancels_the_rest_of_a_soft_chain(stage: &Stage) {
    let (bad, file) = (stage.calm().read_only("bad"), stage.file("a"));
    let results = stage.chain(vec![
        (write_op(&file, 0, b"first"), Soft),
        (write_op(&bad, 0, b"refused"), Soft),
        (write_op(&file, 0, b"never"), Soft),
        (sync_op(&file), None),
    ]);
    assert_eq!(results, [5, -libc::EBADF, CANCELLED, CANCELLED]);
    assert_eq!(stage.read(&file, 0, 10), b"first");
}

pub fn a_short_transfer_cancels_the_rest_of_a_soft_chain(stage: &Stage) {
    let file = stage.calm().file("a");
    stage.write(&file, 0, &[1; 100]);
    let results = stage.chain(vec![
        (read_op(&file, 0, 200), Soft),
        (write_op(&file, 0, b"never"), Soft),
        (Op::Nop, None),
    ]);
    assert_eq!(results, [100, CANCELLED, CANCELLED]);
    assert_eq!(stage.read(&file, 0, 200), [1; 100]);
}

pub fn a_hard_link_holds(stage: &Stage) {
    let (bad, file) = (stage.calm().read_only("bad"), stage.file("a"));
    let results = stage.chain(vec![
        (read_op(&file, 0, 100), Hard),
        (write_op(&bad, 0, b"refused"), Hard),
        (write_op(&file, 0, b"all the same"), None),
    ]);
    assert_eq!(results, [0, -libc::EBADF, 12]);
    assert_eq!(stage.read(&file, 0, 100), b"all the same");
}

pub fn a_broken_soft_link_cancels_beyond_hard_links(stage: &Stage) {
    let (bad, file) = (stage.calm().read_only("bad"), stage.file("a"));
    let results = stage.chain(vec![
        (write_op(&bad, 0, b"refused"), Soft),
        (write_op(&file, 0, b"never"), Hard),
        (write_op(&file, 0, b"never"), None),
    ]);
    assert_eq!(results, [-libc::EBADF, CANCELLED, CANCELLED]);
    assert!(stage.read(&file, 0, 100).is_empty());
}

pub fn a_chain_that_can_never_fit_is_refused_whole(stage: &Stage) {
    let stage = stage.with_entries(8);
    let file = stage.calm().file("a");
    let chain = |count: u64| {
        let steps = (0..count).map(|i| (write_op(&file, i, &[1]), if i + 1 < count { Soft } else { None }));
        steps.collect::<Vec<_>>()
    };
    match stage.io.submit_chain(chain(1000)) {
        // Nothing is queued there, so every chain fits.
        Ok(pending) => {
            assert_eq!(stage.kind(), Kind::Inline);
            assert_eq!(stage.run(join(pending)).len(), 1000);
        }
        Err(e) => {
            assert!(matches!(e, Error::TooLarge(_)), "{e}");
            assert_ne!(stage.kind(), Kind::Inline);
            assert_eq!(stage.io.with_reactor(|r| r.in_driver()), 0);
            stage.result(Op::Nop);
            assert_eq!(stage.io.meta(&file).unwrap().len, 0);
        }
    }
    assert_eq!(stage.chain(chain(8)), [1; 8]);
}

pub fn chains_wait_for_room_and_stay_whole(stage: &Stage) {
    let stage = stage.with_entries(8);
    let file = stage.calm().file("a");
    let mut pending = Vec::new();
    for i in 0..100u64 {
        pending.push(stage.io.submit(Op::Nop));
        let count = 2 + i % 7;
        let chain = (0..count)
            .map(|step| {
                let link = if step + 1 < count { Soft } else { None };
                (write_op(&file, i * 8, &[step as u8 + 1; 8]), link)
            })
            .collect();
        pending.extend(stage.io.submit_chain(chain).unwrap());
    }
    for (result, op) in stage.run(join(pending)) {
        assert_eq!(result, if matches!(op, Op::Nop) { 0 } else { 8 });
    }
    for i in 0..100u64 {
        assert_eq!(
            stage.read(&file, i * 8, 8),
            [2 + (i % 7) as u8; 8],
            "the last step of chain {i} wrote last"
        );
    }
}

pub fn chains_side_by_side_keep_their_own_order(stage: &Stage) {
    let file = stage.calm().file("a");
    let chains: Vec<_> = (0..16u64)
        .map(|i| {
            stage
                .io
                .submit_chain(vec![
                    (write_op(&file, i * 100, &[i as u8; 100]), Soft),
                    (read_op(&file, i * 100, 100), Hard),
                    (write_op(&file, i * 100, &[0xFF; 100]), None),
                ])
                .unwrap()
        })
        .collect();
    for (i, chain) in chains.into_iter().enumerate() {
        let done = stage.run(join(chain));
        assert!(done.iter().all(|(result, _)| *result == 100));
        let (_, read) = done.into_iter().nth(1).unwrap();
        assert_eq!(read.into_buf().unwrap().as_slice(), [i as u8; 100]);
    }
}

pub fn a_chain_of_one_is_a_plain_operation(stage: &Stage) {
    let file = stage.file("a");
    let bytes = vec![7; 300_000];
    assert_eq!(stage.chain(vec![(write_op(&file, 0, &bytes), None)]), [300_000]);
    assert!(stage.read(&file, 0, 300_000) == bytes);
}

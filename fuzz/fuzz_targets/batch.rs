//! The decoder of a store's batches: any payload, any count. What is visited must encode to the payload again.
#![no_main]

use iouring_engine::engine::batch::{self, WriteBatch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u32, Vec<u8>)| {
    let (count, payload) = input;
    let mut again = WriteBatch::new();
    let decoded = batch::decode(&payload, count, |edit| again.push(edit));
    if let Ok(Ok(())) = decoded {
        assert_eq!(again.count(), count);
        assert_eq!(again.payload(), payload, "an accepted payload has one encoding");
    }
});

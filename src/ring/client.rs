//! A sink that is a machine: the C ring's ready list, a log, a network engine.
//!
//! A client is handed its completions and an outbox, never the reactor: it can't submit behind the reactor's back
//! or run another object's completions.

use super::completion::Completion;
use super::op::{Link, Op};

/// Which client of a reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientId(pub(super) u32);

/// What a client asks of the reactor while it takes a completion.
#[derive(Debug, Default)]
pub struct Outbox {
    /// How many items the completion made ready for the client's owner to reap.
    pub ready: usize,
    /// Chains to submit on the client's behalf: operation, its link to the next, its user data.
    pub chains: Vec<Vec<(Op, Link, u64)>>,
}

/// Takes the completions of the operations that were submitted in its name.
pub trait Client {
    /// One completion. `op` is there when it was the last one: the memory is the client's again.
    fn complete(&mut self, outbox: &mut Outbox, user_data: u64, completion: Completion, op: Option<Op>);
}

//! PLACEHOLDER of the sim driver (the simulator).
pub mod fs;

use std::os::fd::RawFd;

use super::completion::{Completion, Token};
use super::driver::{Entry, Wait};
use crate::base::{Error, Result};

/// PLACEHOLDER.
#[derive(Debug)]
pub struct Sim {}

#[allow(missing_docs)]
impl Sim {
    pub fn bind(&mut self) -> Result<()> {
        Ok(())
    }
    pub fn capacity(&self) -> usize {
        0
    }
    pub fn push(&mut self, _chain: &[Entry<'_>]) -> bool {
        false
    }
    pub fn enter(&mut self, _wait: Wait) -> Result<()> {
        Err(Error::Unsupported("placeholder".into()))
    }
    pub fn next(&mut self) -> Option<Completion> {
        None
    }
    pub fn more(&self) -> bool {
        false
    }
    pub fn cancel(&mut self, _token: Token) {}
    pub fn notifier(&mut self) -> Result<RawFd> {
        Err(Error::Unsupported("placeholder".into()))
    }
    pub fn clear_notifier(&mut self) {}
    pub fn signal_notifier(&mut self) {}
    pub fn watch_mailbox(&mut self, _fd: RawFd) -> Result<()> {
        Ok(())
    }
    pub fn make_slots(&mut self, _count: u32) -> Result<()> {
        Ok(())
    }
    pub fn set_slot(&mut self, _slot: u32, _fd: Option<RawFd>) -> Result<()> {
        Ok(())
    }
    pub fn register_buffers(&mut self, _buffers: &[(usize, usize)]) -> Result<()> {
        Ok(())
    }
    pub fn set_buffer(&mut self, _index: u16, _buffer: (usize, usize)) -> Result<()> {
        Ok(())
    }
    pub fn now_us(&self) -> u64 {
        0
    }
    pub fn random(&mut self) -> u64 {
        0
    }
    pub fn pinned_bytes(&self) -> u64 {
        0
    }
}

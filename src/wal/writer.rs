//! The writer: issues a group over an [`Io`](crate::ring::Io).

/// See the module. Made by `Writer::open(io, dir, recovered, options).await`.
#[derive(Debug)]
pub struct Writer {}

//! Proofs about numbers, headers, packets and the layers below them; see `crate::proofs`.

mod encapsulation;
mod headers;
mod numbers;
pub(crate) mod packets;

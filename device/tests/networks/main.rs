//! Networks whose figures are published, in virtual time: the validation of htsim, and the star of HPCC's
//! simulation.
//!
//! Figures are printed with `--nocapture`; docs/topology.md has them beside the published ones.

mod hpcc;
mod htsim;
#[path = "../kit/mod.rs"]
mod kit;
mod ns3;
mod transfers;

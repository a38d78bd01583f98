//! Figures of MRC in virtual time, and RC's go-back-N beside it in the same network: what a line carries when
//! packets are lost, when a plane dies, when seven hosts send to one, and when 64 hosts send to each other.
//!
//! docs/decisions/mrc-figures.md has the command that prints the table.

mod device;
mod ends;
mod fabric;
mod flows;
mod htsim;
mod scenarios;

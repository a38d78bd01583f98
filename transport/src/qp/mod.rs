//! Queue pairs.

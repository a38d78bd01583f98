//! The manual pages of ibv_poll_cq, ibv_post_recv and ibv_req_notify_cq, a test for each sentence.
//!
//! A test's name begins with the page's; what the page says is put in other words above it. What only C
//! programs can see is in `verbs/capi/tests/c`.
#![allow(unreachable_pub)]

#[path = "../kit/mod.rs"]
mod kit;

mod poll_cq;
mod post_recv;
mod req_notify_cq;

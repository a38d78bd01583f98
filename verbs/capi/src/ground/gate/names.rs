//! The names of calls.

use std::collections::HashMap;

use fnv::FnvBuildHasher;

/// The call that a closure belongs to; what nothing here serves says its name itself.
pub(in crate::ground) fn call_of(closure: &str) -> Option<String> {
    if closure.contains("::unserved::") {
        return None;
    }
    let call = closure.split("::").filter(|part| !part.starts_with("{{")).last()?.trim_start_matches('_');
    let has_prefix = closure.contains("::rsocket::")
        || ["ibv_", "rdma_", "mlx", "efadv_", "manadv_"].iter().any(|p| call.starts_with(p));
    Some(if has_prefix { call.to_owned() } else { format!("ibv_{call}") })
}

/// A call of which the name is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) call: &'static str,
    /// The same for all closures of the call: names are counted from 0 as they are asked for.
    pub(super) place: usize,
}

/// Names that were asked for.
#[derive(Default)]
pub(super) struct Names {
    /// By the address of the name of their closure.
    known: HashMap<usize, Option<Name>, FnvBuildHasher>,
    calls: Vec<&'static str>,
}

impl Names {
    /// As [`call_of`].
    pub(super) fn of(&mut self, closure: &'static str) -> Option<Name> {
        *self.known.entry(closure.as_ptr().addr()).or_insert_with(|| {
            let name = call_of(closure)?;
            let place = self.calls.iter().position(|call| *call == name).unwrap_or_else(|| {
                // One for each call that the library has.
                self.calls.push(Box::leak(name.into_boxed_str()));
                self.calls.len() - 1
            });
            self.calls.get(place).map(|call| Name { call, place })
        })
    }
}

/// Whether it is a call of rsockets, whose objects of verbs are its own.
pub(super) fn is_of_sockets(call: &str) -> bool {
    call.starts_with('r') && !call.starts_with("rdma_")
}

/// Whether a call gives an object back.
pub(super) fn gives_back(call: &str) -> bool {
    const STARTS: [&str; 6] =
        ["ibv_destroy_", "ibv_dealloc_", "ibv_dereg_", "ibv_close_", "ibv_free_", "rdma_destroy_"];
    STARTS.iter().any(|start| call.starts_with(start))
}

/// Whether a call works although the device is lost.
pub(super) fn outlives_device(call: &str) -> bool {
    const EVENTS: [&str; 4] =
        ["ibv_get_async_event", "ibv_ack_cq_events", "rdma_get_cm_event", "rdma_ack_cm_event"];
    // What is below a socket says that the device is lost.
    gives_back(call) || EVENTS.contains(&call) || is_of_sockets(call)
}

/// Whether a call looks for completions: those of a device that was pulled out are there.
pub(super) fn polls(call: &str) -> bool {
    ["ibv_poll_cq", "ibv_start_poll", "ibv_next_poll", "ibv_end_poll"].contains(&call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_named_by_their_closures() {
        for (closure, call) in [
            ("pumice::memory::ibv_reg_mr::{{closure}}", Some("ibv_reg_mr")),
            ("pumice::queue_pair::create_qp_ex::{{closure}}::{{closure}}", Some("ibv_create_qp_ex")),
            ("pumice::query::_ibv_query_gid_ex::{{closure}}", Some("ibv_query_gid_ex")),
            ("pumice::rdma_cm::bind::rdma_listen::{{closure}}", Some("rdma_listen")),
            ("pumice::rsocket::calls::connection::raccept::{{closure}}::{{closure}}", Some("raccept")),
            ("::rsocket::rrecv", Some("rrecv")),
            ("pumice::ground::unserved::int::{{closure}}", None),
        ] {
            assert_eq!(call_of(closure).as_deref(), call, "{closure}");
        }
        let mut names = Names::default();
        let poll = names.of("a::poll_cq::{{closure}}");
        assert_eq!(poll, Some(Name { call: "ibv_poll_cq", place: 0 }));
        assert_eq!(names.of("a::post_send::{{closure}}").map(|name| name.place), Some(1));
        assert_eq!(names.of("b::poll_cq::{{closure}}::{{closure}}"), poll, "another closure of the call");
    }

    #[test]
    fn calls_that_give_back_are_known() {
        for call in ["ibv_destroy_qp", "ibv_dealloc_pd", "ibv_dereg_mr", "ibv_close_xrcd", "ibv_free_dm"] {
            assert!(gives_back(call), "{call}");
        }
        assert!(!gives_back("ibv_create_qp") && !gives_back("ibv_detach_mcast"));
    }
}

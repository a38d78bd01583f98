//! What the tests of this folder tell a checker: what a device tells, of queue pairs that have no records.

use pumice_transport::types::{Peer, QpState, RemoteRange, SendRequest, WorkCompletion};
use pumice_transport::wire::OperationClass;

use crate::check::Checker;

impl Checker {
    pub(super) fn order_of_post(
        &mut self,
        number: u32,
        message: u64,
        length_bytes: u32,
        request: &SendRequest<'_>,
    ) {
        self.for_each_check(|check, context| {
            check.request_posted(context, number, message, length_bytes, request)
        });
    }

    pub(super) fn order_of_completion(&mut self, number: u32, completion: &WorkCompletion, released: u32) {
        self.for_each_check(|check, context| check.completed(context, number, completion, released));
    }

    pub(super) fn order_of_poll(&mut self, completion: &WorkCompletion) {
        self.for_each_check(|check, context| check.polled(context, 0, completion));
    }

    pub(super) fn order_of_state(&mut self, number: u32, to: QpState, peer: Option<Peer>) {
        self.for_each_check(|check, context| check.state_changed(context, number, to, peer));
    }

    pub(super) fn order_of_end(&mut self, number: u32) {
        self.for_each_check(|check, context| check.qp_destroyed(context, number));
    }

    pub(super) fn order_of_access(
        &mut self,
        number: u32,
        class: OperationClass,
        range: &RemoteRange,
        ends: bool,
    ) {
        self.for_each_check(|check, context| check.remote_access(context, number, class, range, ends));
    }

    pub(super) fn order_of_write(&mut self, number: u32, has_imm: bool) {
        self.for_each_check(|check, context| check.remote_write_ended(context, number, has_imm));
    }
}

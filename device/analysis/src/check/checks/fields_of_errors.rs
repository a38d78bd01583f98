//! Fields of completions that have no meaning.

use pumice_transport::types::WcStatus;

use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::WC_FIELD_OF_ERROR;
use crate::check::notified::Check;

/// The check for reads of a failed completion's field that has no meaning then.
#[derive(Debug, Default)]
pub(super) struct FieldsOfErrors;

impl Check for FieldsOfErrors {
    fn field_of_error_read(
        &mut self,
        context: &mut CheckContext,
        address: u64,
        field: &str,
        status: WcStatus,
    ) {
        let stack = context.here();
        let Some(object) = context.objects.at(address).map(|object| object.name()) else { return };
        let numbers = format!("the program reads {field} of a completion with status {}", status.name());
        context.found(&WC_FIELD_OF_ERROR, FindingParts { object, numbers, stack, related: Vec::new() });
    }
}

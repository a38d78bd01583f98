//! Fields of completions that mean nothing.

use pumice_transport::types::WcStatus;

use crate::check::context::{Context, Found};
use crate::check::kind::WC_FIELD_OF_ERROR;
use crate::check::told::Check;

/// The program reads a field of a failed completion that has no meaning then.
#[derive(Debug, Default)]
pub(super) struct FieldsOfErrors;

impl Check for FieldsOfErrors {
    fn field_of_error_read(&mut self, context: &mut Context, address: u64, field: &str, status: WcStatus) {
        let stack = context.here();
        let Some(object) = context.objects.at(address).map(|object| object.name()) else { return };
        let numbers = format!("the program reads {field} of a completion with status {}", status.name());
        context.found(&WC_FIELD_OF_ERROR, Found { object, numbers, stack, related: Vec::new() });
    }
}

//! The loss of the device, which a fault plan can bring about.

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_transport::types::AsyncEventType;

use crate::ground::gate;

/// Hears of DEVICE_FATAL: from then on calls fail.
pub(crate) struct LossWatch;

impl Subscriber for LossWatch {
    fn topics(&self) -> Topics {
        Topics::ASYNC_EVENTS
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        if matches!(event, Event::AsyncEventRaised { event: AsyncEventType::DeviceFatal, .. }) {
            gate::lose_device();
        }
    }
}

//! What the gate knows about a call before it enters.

use pumice_transport::types::QpState;

use crate::call_sites::own_devices::device_at;

/// The objects that a call is about.
#[derive(Clone, Copy)]
pub(crate) struct CallSubject {
    pub(super) address: usize,
    on: DeviceSource,
    pub(super) queue_pair: Option<fn(usize) -> Option<u32>>,
    /// State to which the call is to bring the queue pair.
    pub(super) to: Option<QpState>,
}

/// Object that determines the device of a call.
#[derive(Clone, Copy)]
enum DeviceSource {
    Nothing,
    /// A context, or an object of one, by its address.
    Object(usize),
    /// An object that may have a context, and the function that finds the context's address; 0 if it has
    /// none. The function is called no earlier than the call itself accesses the object: a pointer may be
    /// invalid.
    Owner(*const (), fn(*const ()) -> usize),
    /// A device, by its index among the devices.
    Device(usize),
}

impl CallSubject {
    /// A call about no known object.
    pub(crate) const NOTHING: CallSubject =
        CallSubject { address: 0, on: DeviceSource::Nothing, queue_pair: None, to: None };

    /// Returns a call about the object behind a program's pointer.
    pub(crate) fn of<T>(pointer: *const T) -> CallSubject {
        let address = pointer.addr();
        CallSubject { address, on: DeviceSource::Object(address), ..CallSubject::NOTHING }
    }

    /// Returns a call about the device of the object behind a program's pointer: the call uses the object,
    /// and is not about it alone.
    pub(crate) fn on<T>(pointer: *const T) -> CallSubject {
        CallSubject { on: DeviceSource::Object(pointer.addr()), ..CallSubject::NOTHING }
    }

    /// Returns a call about a device, by its index among the devices.
    pub(crate) const fn device_at(index: usize) -> CallSubject {
        CallSubject { on: DeviceSource::Device(index), ..CallSubject::NOTHING }
    }

    /// Returns the same call about an object that may have a context, whose address `context` finds.
    pub(crate) const fn owned_by(self, pointer: *const (), context: fn(*const ()) -> usize) -> CallSubject {
        CallSubject { on: DeviceSource::Owner(pointer, context), ..self }
    }

    /// Returns a call about the queue pair behind a program's pointer; `ordinal` finds its ordinal by the
    /// address.
    pub(crate) fn queue_pair<T>(pointer: *const T, ordinal: fn(usize) -> Option<u32>) -> CallSubject {
        CallSubject { queue_pair: Some(ordinal), ..CallSubject::of(pointer) }
    }

    /// Returns the same call, which is to bring the queue pair to a state.
    pub(crate) const fn towards(self, to: Option<QpState>) -> CallSubject {
        CallSubject { to, ..self }
    }

    /// Returns the index of the device among the devices, if it is known.
    pub(crate) fn device(self) -> Option<usize> {
        match self.on {
            DeviceSource::Nothing => None,
            DeviceSource::Object(address) => device_at(address),
            DeviceSource::Owner(pointer, context) => device_at(context(pointer)),
            DeviceSource::Device(index) => Some(index),
        }
    }
}

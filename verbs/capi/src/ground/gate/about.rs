//! What is known of calls before they enter.

use crate::ground::own_devices::device_at;

/// What a call is about, for those who ask.
#[derive(Clone, Copy)]
pub(crate) struct About {
    pub(super) address: usize,
    on: On,
    pub(super) queue_pair: Option<fn(usize) -> Option<u32>>,
}

/// What says which device a call is about.
#[derive(Clone, Copy)]
enum On {
    Nothing,
    /// A context, or an object of one, by its address.
    Object(usize),
    /// What has a context or none, and the address of that; 0 if it has none. It is asked no earlier than the
    /// call itself asks: a pointer may lead nowhere.
    Owner(*const (), fn(*const ()) -> usize),
    /// A device, by its index among the devices.
    Device(usize),
}

impl About {
    /// Nothing that is known.
    pub(crate) const NOTHING: About = About { address: 0, on: On::Nothing, queue_pair: None };

    /// The object behind a program's pointer.
    pub(crate) fn of<T>(pointer: *const T) -> About {
        let address = pointer.addr();
        About { address, on: On::Object(address), queue_pair: None }
    }

    /// The device of the object behind a program's pointer: the call uses it, and is not about it alone.
    pub(crate) fn on<T>(pointer: *const T) -> About {
        About { on: On::Object(pointer.addr()), ..About::NOTHING }
    }

    /// A device, by its index among the devices.
    pub(crate) const fn device_at(index: usize) -> About {
        About { on: On::Device(index), ..About::NOTHING }
    }

    /// The same, of something that has a context at times, whose address `context` finds.
    pub(crate) const fn owned_by(self, pointer: *const (), context: fn(*const ()) -> usize) -> About {
        About { on: On::Owner(pointer, context), ..self }
    }

    /// The queue pair behind a program's pointer; `ordinal` finds its ordinal by the address.
    pub(crate) fn queue_pair<T>(pointer: *const T, ordinal: fn(usize) -> Option<u32>) -> About {
        About { queue_pair: Some(ordinal), ..About::of(pointer) }
    }

    /// The index of the device among the devices, if it is known.
    pub(crate) fn device(self) -> Option<usize> {
        match self.on {
            On::Nothing => None,
            On::Object(address) => device_at(address),
            On::Owner(pointer, context) => device_at(context(pointer)),
            On::Device(index) => Some(index),
        }
    }
}

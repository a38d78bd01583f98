//! Options that are set one after the other, as those of a device and of a queue pair are.

/// Gives a struct of options a `new` and a setter for each of the fields named, so that options of all calls
/// are written alike: `ConnectionParams::new().retry_count(3).traffic_class(96)`.
macro_rules! setters {
    ($options:ident { $($field:ident: $kind:ty),+ $(,)? }) => {
        impl $options {
            /// The default options.
            pub fn new() -> $options {
                $options::default()
            }

            $(
                #[doc = concat!("Sets the field `", stringify!($field), "`.")]
                pub fn $field(mut self, $field: $kind) -> $options {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}

pub(crate) use setters;

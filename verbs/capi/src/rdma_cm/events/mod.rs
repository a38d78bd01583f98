//! Events as programs get them ([`event`]), converted from the device's ([`translation`]) when a program
//! fetches them ([`fetch`]).

pub(crate) mod event;
pub(crate) mod translation;

//! MRC queue pairs. They are beside the table of all other queue pairs, which is not slower because of them:
//! their indices are reserved there, so that the lists of ready queue pairs and of deadlines serve both.

mod endpoint;
mod entry;
mod inspect;
mod network;
mod profile;
mod requests;
mod serve;
mod table;

pub use pumice_model::mrc_profiles::{
    CcChange, CcProfile, ControlError, EvChange, EvMode, EvName, EvRecord, EvSlot, FormatChange, FormatMode,
    FormatProfile, MOST_EVS, MOST_PROFILES, ProfileStage,
};

pub(crate) use endpoint::{ENDPOINT_INDEX, EndpointAsk};
pub(crate) use entry::MrcEntry;
pub use entry::{MrcAttributes, MrcChosen};
pub(crate) use network::BufferWindow;
pub(crate) use profile::{automatic, with_ports};
pub use table::MrcEvEvent;
pub(crate) use table::MrcTable;

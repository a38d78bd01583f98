//! Path migration (APM): the alternate path of a connection, and when it replaces the primary one.
//!
//! Both sides load an alternate path and set `path_mig_state` to REARM. The bit MigReq of their packets is 0
//! from then on, and a side that sees a packet with 0 is ARMED. An armed side migrates when its program asks
//! for it, when its retries are used up, or when its peer has migrated, whose packets have MigReq 1 and come
//! by the alternate path. Then the alternate path becomes the primary one, MigReq is 1, and the state is not
//! armed until the program loads another alternate path.

use super::alternate::{ARMED, AlternatePath, MIGRATED, REARM};
use super::attributes::{AttributeMask, QpAttributes};
use super::peer_port::{Fit, PeerPort};
use super::receive::pkey_matches;
use super::requester::{Requester, SendFailure};
use super::settings::QpSettings;
use super::transition::{ModifyError, Step};
use super::{Arrival, QueuePair, ReceivingSide};
use crate::event::RetransmitReason;
use crate::host::Host;
use crate::path::Path;
use crate::types::{AsyncEventType, QpState, WcStatus};
use crate::wire::Packet;

impl QueuePair {
    /// Loads an alternate path. The device calls it with the resolved path of the alternate address vector,
    /// whenever one is set.
    pub fn set_alternate(&mut self, alternate: AlternatePath) {
        self.migration.alternate = Some(alternate);
    }

    /// Reports whether the peer's address, see [`QueuePair::peer`], has changed since the last call.
    pub fn take_moved(&mut self) -> bool {
        core::mem::take(&mut self.migration.has_moved)
    }

    /// # Errors
    /// Checks that there is an alternate path if the new state needs one.
    pub(super) fn check_migration(
        &self,
        step: Step,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(), ModifyError> {
        let arms = mask.contains(AttributeMask::PATH_MIG_STATE) && attributes.path_mig_state != MIGRATED;
        if arms && !mask.contains(AttributeMask::ALT_PATH) && self.migration.alternate.is_none() {
            return Err(ModifyError::NoAlternatePath { step, state: attributes.path_mig_state });
        }
        Ok(())
    }

    /// Sets the state that the program put into `path_mig_state`. ARMED counts as REARM, because only the
    /// device decides about ARMED.
    pub(super) fn set_migration<H: Host>(&mut self, wanted: u32, host: &mut H) {
        let before = self.attributes.path_mig_state;
        match wanted {
            MIGRATED if before == ARMED => self.migrate(host),
            MIGRATED => self.attributes.path_mig_state = MIGRATED,
            _ => {
                self.attributes.path_mig_state = REARM;
                self.migration.is_refused = false;
            }
        }
        self.settings.is_migrated = self.attributes.path_mig_state == MIGRATED;
    }

    /// Migrates when all retries are used up; returns true if the alternate path is tried instead of failing.
    pub(super) fn try_migrate<H: Host>(&mut self, failure: SendFailure, host: &mut H) -> bool {
        let is_silent = failure.status == WcStatus::RetryExcErr && self.requester.retries.left == 0;
        let migrates = is_silent
            && self.requester.failures.judged.is_none()
            && self.attributes.path_mig_state == ARMED
            && self.migration.alternate.is_some();
        if migrates {
            self.migrate(host);
        }
        migrates
    }

    /// Checks on a packet, while an alternate path is loaded, whether the peer is armed or has migrated.
    #[cold]
    pub(super) fn watch_migration<H: Host>(
        &mut self,
        arrival: &Arrival<'_>,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        let (Some(path), Some(alternate)) = (&self.settings.path, &self.migration.alternate) else { return };
        let takes_part = matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd);
        if packet.info().service != self.settings.service() || !takes_part {
            return;
        }
        let arrives_by = |path: &Path| {
            arrival.flow.source == path.flow.destination && arrival.flow.destination == path.flow.source
        };
        let (by_primary, by_alternate) = (arrives_by(path), arrives_by(&alternate.path));
        let has_pkey = pkey_matches(packet.bth().pkey, alternate.pkey);
        let (asks, is_armed) = (packet.bth().migrated, self.attributes.path_mig_state == ARMED);
        if asks && by_alternate && (is_armed || !by_primary) {
            // A sender that does not know the connection's PSNs cannot cause a migration.
            if has_pkey && self.fit(packet) != Fit::Far {
                self.migrate(host);
            }
        } else if by_primary {
            if !asks && !is_armed {
                self.attributes.path_mig_state = ARMED;
            }
        } else if asks && is_armed && !core::mem::replace(&mut self.migration.is_refused, true) {
            host.event(&self.settings.context, AsyncEventType::PathMigErr);
        }
    }

    /// Makes the alternate path the primary one. Outstanding packets are sent again on it.
    fn migrate<H: Host>(&mut self, host: &mut H) {
        let Some(AlternatePath { path, pkey }) = self.migration.alternate.take() else { return };
        let attributes = &mut self.attributes;
        attributes.address_vector = attributes.alt_address_vector;
        attributes.pkey_index = attributes.alt_pkey_index;
        attributes.port_num = attributes.alt_port_num;
        attributes.timeout = attributes.alt_timeout;
        attributes.path_mig_state = MIGRATED;
        self.settings.path = Some(self.settings.congestion.marked(path));
        self.settings.pkey = pkey;
        self.settings.timeout = self.attributes.timeout;
        self.settings.is_migrated = true;
        self.notifier.forget_path();
        self.peer_port = PeerPort::default();
        self.migration.has_moved = true;
        if matches!(self.receiver, ReceivingSide::Reliable(_)) {
            self.requester.begin_on_new_path(&self.settings, host);
        }
        host.event(&self.settings.context, AsyncEventType::PathMig);
    }
}

impl Requester {
    /// Sends outstanding packets again with all retries, because the path changed.
    fn begin_on_new_path<H: Host>(&mut self, settings: &QpSettings, host: &mut H) {
        self.reload_retries(settings);
        self.retries.timer_ns = None;
        self.early.timer_ns = None;
        self.early.backoff = 0;
        self.fruitless.implied_nak_seen = false;
        if self.in_flight() > 0 {
            self.window.on_loss(self.psns.sent_end);
            self.rewind(settings, RetransmitReason::Silence, host);
        }
    }
}

//! The XRC targets that this process knows, and their registrations in this process. A target belongs to all
//! registrations, and lives until the last of them is closed.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_model::event::async_event::{AsyncElement, AsyncEventQueue};
use pumice_platform::error::ResourceError;
use pumice_platform::event_queue::EventAccount;
use pumice_platform::table::Handle;
use pumice_transport::host::QpContext;
use pumice_transport::types::AsyncEventType;
use pumice_transport::wire::Qpn;

/// ID of the registration of a target's creator.
pub const CREATOR: u32 = 0;

/// A target as the tables of this process see it.
#[derive(Debug)]
pub(crate) struct Target {
    context: QpContext,
    registrations: Vec<Registration>,
    pub next_registration: u32,
    /// The target is the receiving half of a queue pair of OFED 1.x: only the process that made it has it.
    pub half: bool,
    /// QP_FATAL was raised and the engine notified.
    pub fatal: bool,
}

/// A registration of one user of a target.
#[derive(Debug)]
pub(crate) struct Registration {
    pub id: u32,
    pub cookie: u64,
    account: Arc<EventAccount>,
    /// Open of the domain through which it was made.
    pub xrcd: Handle,
}

/// Result of opening a target.
#[derive(Debug)]
pub struct TargetOpened {
    /// ID of the registration among those of the target.
    pub id: u32,
    /// Counter of its asynchronous events.
    pub account: Arc<EventAccount>,
}

/// Result of closing a registration.
#[derive(Debug)]
pub struct TargetClosed {
    /// Counter of its events: the caller waits, without the engine's lock, until they are acknowledged.
    pub account: Arc<EventAccount>,
    /// Open of the domain through which it was made.
    pub xrcd: Handle,
    /// The registration was the last one of this process.
    pub last: bool,
}

/// The targets that this process knows.
#[derive(Debug, Default)]
pub struct Registrations {
    targets: BTreeMap<Qpn, Target>,
    /// Events of shared targets that are still to be passed to the other processes.
    raised: Vec<(Qpn, AsyncEventType)>,
}

impl Registrations {
    /// Adds a target that is not open yet.
    pub fn insert(&mut self, context: QpContext, half: bool) {
        let target =
            Target { context, registrations: Vec::new(), next_registration: CREATOR, half, fatal: false };
        self.targets.insert(context.qpn, target);
    }

    /// Reports whether this number is a target's.
    pub fn contains(&self, qpn: Qpn) -> bool {
        self.targets.contains_key(&qpn)
    }

    /// Reports whether the target is open in this process.
    pub fn is_open(&self, qpn: Qpn) -> bool {
        self.targets.get(&qpn).is_some_and(|target| !target.registrations.is_empty())
    }

    /// Returns the targets of a domain.
    pub fn of_domain(&self, domain: u32) -> impl Iterator<Item = Qpn> {
        self.targets
            .values()
            .filter(move |target| target.context.xrcd == domain)
            .map(|target| target.context.qpn)
    }

    /// Returns the index of a target's domain.
    pub fn domain_of(&self, qpn: Qpn) -> Option<u32> {
        self.targets.get(&qpn).map(|target| target.context.xrcd)
    }

    /// Checks that a number is that of a target of a domain, and may be opened.
    ///
    /// # Errors
    /// Fails with `Invalid` if it is not.
    pub fn check(&self, domain: u32, qpn: Qpn) -> Result<(), ResourceError> {
        match self.targets.get(&qpn) {
            //= man:ibv_open_qp
            //| A target can be opened only through its own domain and by its number.
            Some(target) if target.context.xrcd == domain && !target.half => Ok(()),
            _ => Err(ResourceError::invalid(format!("there is no XRC target {qpn} in this XRC domain"))),
        }
    }

    /// Opens a target: it lives at least until the registration is closed, and its events come with `cookie`
    /// as well.
    ///
    /// # Errors
    /// Fails with `Invalid` if there is no such target.
    pub fn open(&mut self, qpn: Qpn, xrcd: Handle, cookie: u64) -> Result<TargetOpened, ResourceError> {
        let missing = || ResourceError::invalid(format!("there is no XRC target {qpn}"));
        let target = self.targets.get_mut(&qpn).ok_or_else(missing)?;
        let account = Arc::new(EventAccount::new());
        let id = target.next_registration;
        target.next_registration += 1;
        target.registrations.push(Registration { id, cookie, account: Arc::clone(&account), xrcd });
        Ok(TargetOpened { id, account })
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// Fails with `Invalid` if there is no such registration.
    pub fn close(&mut self, qpn: Qpn, id: u32) -> Result<TargetClosed, ResourceError> {
        let missing = || ResourceError::invalid(format!("XRC target {qpn} is not open here"));
        let target = self.targets.get_mut(&qpn).ok_or_else(missing)?;
        let position = target.registrations.iter().position(|registration| registration.id == id);
        let Registration { account, xrcd, .. } = target.registrations.remove(position.ok_or_else(missing)?);
        //= statement:48
        //| A target lives until the last of those who have it open closes it.
        Ok(TargetClosed { account, xrcd, last: target.registrations.is_empty() })
    }

    /// Removes a target that is destroyed.
    pub fn remove(&mut self, qpn: Qpn) {
        self.targets.remove(&qpn);
        self.take_raised(qpn, |_| {});
    }

    /// Stores an event of a shared target for the other processes.
    pub fn note_raised(&mut self, qpn: Qpn, event: AsyncEventType) {
        self.raised.push((qpn, event));
    }

    /// Takes the events of a target that were not yet passed to the other processes.
    pub fn take_raised(&mut self, qpn: Qpn, mut each: impl FnMut(AsyncEventType)) {
        self.raised.retain(|&(of, event)| {
            if of == qpn {
                each(event);
            }
            of != qpn
        });
    }

    /// Delivers an event of a target to all of its registrations in this process. Returns false if the number
    /// is not a target's.
    pub fn show(&self, qpn: Qpn, event: AsyncEventType, to: &AsyncEventQueue) -> bool {
        let Some(target) = self.targets.get(&qpn) else { return false };
        //= statement:48
        //| All who have a target open get its events.
        for registration in &target.registrations {
            let element = AsyncElement::Qp { qpn: qpn.value(), cookie: registration.cookie };
            to.raise_for(event, element, &registration.account);
        }
        true
    }

    /// Returns the flag that says that a target's QP_FATAL was raised.
    pub fn fatal_mut(&mut self, qpn: Qpn) -> Option<&mut bool> {
        self.targets.get_mut(&qpn).map(|target| &mut target.fatal)
    }
}

//! The facts about a call, and the types by which rows state them.

use crate::errnos::Errnos;

/// The way in which a call reports that it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorReturn {
    /// The call returns the errno.
    Errno,
    /// The call returns the errno as a negative number.
    Negative,
    /// The call returns -1 and sets errno.
    MinusOne,
    /// The call returns NULL and sets errno.
    Null,
    /// The call cannot fail: it returns nothing, or the value that it was asked for.
    Plain,
}

/// The library that a call comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFamily {
    /// Calls of libibverbs.
    Verbs,
    /// Calls that libibverbs has for its providers only.
    Private,
    /// Calls of librdmacm, rsockets apart.
    Connections,
    /// Calls of rsockets, which librdmacm has too. Their objects of verbs are their own.
    Sockets,
    /// Calls of libmrc, which several vendors have.
    Mrc,
    /// Calls of a vendor's library, as for "mlx5 (ConnectX)" adapters.
    Vendor(&'static str),
}

/// The object that a call acts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the object of that name")]
pub enum CallObject {
    /// The whole process, or nothing.
    Process,
    DeviceList,
    Device,
    Context,
    /// A protection domain, also a parent domain.
    Domain,
    ThreadDomain,
    /// A memory region.
    Region,
    /// A memory window.
    Window,
    Buffer,
    DeviceMemory,
    DmaHandle,
    /// A completion channel.
    Channel,
    CompletionQueue,
    AddressHandle,
    QueuePair,
    /// A shared receive queue.
    ReceiveQueue,
    XrcDomain,
    /// A receiving queue pair of OFED 1.x, which programs know by its number.
    XrcTarget,
    WorkQueue,
    IndirectionTable,
    Flow,
    Counters,
    EventChannel,
    Identifier,
    AddressList,
    /// An rsocket.
    Socket,
    /// A context of libmrc, which is made of one of verbs.
    MrcContext,
    /// A hint about the queue pairs that a program is about to make.
    MrcHint,
    /// A mapping of an rsocket.
    Mapping,
    /// A descriptor of `repoll_create`.
    Poller,
}

/// The action of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallAction {
    /// Makes an object.
    Create(CallObject),
    /// Gives an object back. The call works although the device is lost, because programs clean up.
    Destroy,
    /// Changes an object.
    Change,
    /// Queries a value of an object.
    Query,
    /// Converts numbers to words, or to other numbers.
    Convert,
    /// Lets peers connect afterwards.
    Listen,
    /// Waits for an event.
    Wait,
    /// Acknowledges events.
    Acknowledge,
    /// Builds a request.
    Build,
    /// Posts requests.
    Post,
    /// Polls for completions, or for data and events of sockets.
    Poll,
    /// Arms a completion queue.
    Arm,
    /// Moves data through a socket.
    Transfer,
}

impl CallAction {
    /// Returns the object that the call makes, if it makes one.
    pub const fn made(self) -> Option<CallObject> {
        match self {
            CallAction::Create(object) => Some(object),
            _ => None,
        }
    }
}

/// The facts about one call.
#[derive(Debug, Clone, Copy)]
pub struct CallFacts {
    /// Name of the call, as programs, fault plans and reports write it.
    pub name: &'static str,
    /// Library that it comes from.
    pub family: CallFamily,
    /// Symbol that programs link with; most have the name of the call. Without a version there is no symbol:
    /// the call is inline in a header, and goes through a table of functions.
    pub symbol: &'static str,
    /// Version of the symbol; [`CallFacts::PRIVATE`] stands for all generations of the providers' ABI.
    pub version: &'static str,
    /// The symbol also has the version IBVERBS_1.0, whose structures are those of 2006: it is refused.
    pub has_first_version: bool,
    /// The call is not implemented: it fails with EOPNOTSUPP, in the way of its answer.
    pub is_refused: bool,
    /// Way in which it fails.
    pub answer: ErrorReturn,
    /// Action of the call.
    pub act: CallAction,
    /// Object that it acts on; for a call that makes an object, the owner.
    pub on: CallObject,
    /// Manual page in section 3; empty if rdma-core 44 has none.
    pub page: &'static str,
    /// Errnos with which a fault plan may make it fail.
    pub errnos: Option<Errnos>,
    /// Replacement for a vendor's call, where the device is none of the vendor's; empty for others.
    pub replacement: &'static str,
    /// Libraries try this call on every device, and take another way if it is refused.
    pub is_feature_probe: bool,
}

impl CallFacts {
    /// Version of symbols that all generations of the providers' ABI have.
    pub const PRIVATE: &'static str = "IBVERBS_PRIVATE";

    /// Returns its name without that of its library, as functions for tables have it: `post_send`.
    pub fn short_name(&self) -> &'static str {
        self.name.strip_prefix("ibv_").unwrap_or(self.name)
    }

    const fn new(answer: ErrorReturn, version: &'static str) -> CallFacts {
        CallFacts {
            name: "",
            family: CallFamily::Verbs,
            symbol: "",
            version,
            has_first_version: false,
            is_refused: false,
            answer,
            act: CallAction::Query,
            on: CallObject::Process,
            page: OWN,
            errnos: None,
            replacement: "",
            is_feature_probe: false,
        }
    }

    pub(crate) const fn named(mut self, name: &'static str, family: CallFamily) -> CallFacts {
        (self.name, self.family) = (name, family);
        if self.symbol.is_empty() {
            self.symbol = name;
        }
        if matches!(self.page.as_bytes(), b"=") {
            self.page = name;
        }
        self
    }

    const fn does(mut self, act: CallAction, on: CallObject) -> CallFacts {
        (self.act, self.on) = (act, on);
        self
    }

    pub(crate) const fn symbol(mut self, symbol: &'static str) -> CallFacts {
        self.symbol = symbol;
        self
    }

    pub(crate) const fn first(mut self) -> CallFacts {
        self.has_first_version = true;
        self
    }

    pub(crate) const fn refused(mut self) -> CallFacts {
        self.is_refused = true;
        self
    }

    pub(crate) const fn page(mut self, page: &'static str) -> CallFacts {
        self.page = page;
        self
    }

    pub(crate) const fn no_page(self) -> CallFacts {
        self.page("")
    }

    /// Marks a call of the providers: programs do not make it, and it is refused.
    pub(crate) const fn hidden(self) -> CallFacts {
        self.no_page().refused()
    }

    pub(crate) const fn fails(mut self, errnos: Errnos) -> CallFacts {
        self.errnos = Some(errnos);
        self
    }

    /// Marks a vendor's call, which is refused, and names its replacement.
    pub(crate) const fn replacement(mut self, replacement: &'static str) -> CallFacts {
        self.replacement = replacement;
        self.no_page().refused()
    }

    /// Marks a vendor's call that answers on devices that look like the vendor's, and names the replacement
    /// on others.
    pub(crate) const fn for_vendor_device(mut self, replacement: &'static str) -> CallFacts {
        self.replacement = replacement;
        self.no_page()
    }

    pub(crate) const fn probe(mut self) -> CallFacts {
        self.is_feature_probe = true;
        self
    }

    pub(crate) const fn creates(self, object: CallObject, of: CallObject) -> CallFacts {
        self.does(CallAction::Create(object), of)
    }

    pub(crate) const fn destroys(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Destroy, object)
    }

    pub(crate) const fn changes(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Change, object)
    }

    pub(crate) const fn queries(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Query, object)
    }

    pub(crate) const fn converts(self) -> CallFacts {
        self.does(CallAction::Convert, CallObject::Process)
    }

    pub(crate) const fn listens(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Listen, object)
    }

    pub(crate) const fn waits(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Wait, object)
    }

    pub(crate) const fn acknowledges(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Acknowledge, object)
    }

    pub(crate) const fn builds(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Build, object)
    }

    pub(crate) const fn posts(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Post, object)
    }

    pub(crate) const fn polls(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Poll, object)
    }

    pub(crate) const fn arms(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Arm, object)
    }

    pub(crate) const fn transfers(self, object: CallObject) -> CallFacts {
        self.does(CallAction::Transfer, object)
    }
}

/// Mark of a call that has a manual page of its own.
const OWN: &str = "=";

/// Version of calls that are inline in a header.
pub(crate) const INLINE: &str = "";

pub(crate) const fn errno(version: &'static str) -> CallFacts {
    CallFacts::new(ErrorReturn::Errno, version)
}

pub(crate) const fn negative(version: &'static str) -> CallFacts {
    CallFacts::new(ErrorReturn::Negative, version)
}

pub(crate) const fn minus(version: &'static str) -> CallFacts {
    CallFacts::new(ErrorReturn::MinusOne, version)
}

pub(crate) const fn null(version: &'static str) -> CallFacts {
    CallFacts::new(ErrorReturn::Null, version)
}

pub(crate) const fn plain(version: &'static str) -> CallFacts {
    CallFacts::new(ErrorReturn::Plain, version)
}

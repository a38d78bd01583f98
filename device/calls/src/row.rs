//! What is known of a call, and the words in which rows say it.

use crate::errnos::Errnos;

/// How a call says that it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It returns the errno.
    Errno,
    /// It returns the errno as a negative number.
    Negative,
    /// It returns -1 and sets errno.
    MinusOne,
    /// It returns NULL and sets errno.
    Null,
    /// It cannot fail: it returns nothing, or what it was asked for.
    Plain,
}

/// Where a call comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// libibverbs.
    Verbs,
    /// What libibverbs has for its providers only.
    Private,
    /// librdmacm, rsockets apart.
    Connections,
    /// rsockets, which librdmacm has too. Their objects of verbs are their own.
    Sockets,
    /// A vendor's library, as for "mlx5 (ConnectX)" adapters.
    Vendor(&'static str),
}

/// What calls act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the object of that name")]
pub enum Object {
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
    /// A mapping of an rsocket.
    Mapping,
    /// A descriptor of `repoll_create`.
    Poller,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Makes an object.
    Make(Object),
    /// Gives an object back: it works although the device is lost, because programs clean up.
    GiveBack,
    /// Changes an object.
    Change,
    /// Asks an object for a value.
    Ask,
    /// Puts numbers into words, or into other numbers.
    Say,
    /// Peers can connect afterwards.
    Listen,
    /// Waits for an event.
    Wait,
    /// Acknowledges events.
    Acknowledge,
    /// Puts a request together.
    Build,
    /// Posts requests.
    Post,
    /// Looks for completions, or for what sockets have.
    Poll,
    /// Arms a completion queue.
    Arm,
    /// Moves data through a socket.
    Move,
}

impl Act {
    /// What it makes, if it makes something.
    pub const fn made(self) -> Option<Object> {
        match self {
            Act::Make(object) => Some(object),
            _ => None,
        }
    }
}

/// A call.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name, as programs, fault plans and reports write it.
    pub name: &'static str,
    /// Where it comes from.
    pub family: Family,
    /// The symbol that programs link with; most have the name of the call. Without a version it is none:
    /// the call is inline in a header, and leads through a table of functions.
    pub symbol: &'static str,
    /// The version of the symbol; [`Row::PRIVATE`] stands for all generations of the providers' ABI.
    pub version: &'static str,
    /// The symbol also has the version IBVERBS_1.0, whose structures are those of 2006: it is refused.
    pub has_first_version: bool,
    /// Nothing serves it: it fails with EOPNOTSUPP, in the way of its answer.
    pub is_refused: bool,
    /// How it fails.
    pub answer: Answer,
    /// What it does.
    pub act: Act,
    /// What it acts on; of what is made, the owner.
    pub on: Object,
    /// Its manual page in section 3; empty if rdma-core 44 has none.
    pub page: &'static str,
    /// What a fault plan may have it fail with.
    pub errnos: Option<Errnos>,
    /// What serves instead of a vendor's call, where the device is none of the vendor's; empty for others.
    pub instead: &'static str,
    /// Libraries ask every device, and take the other way after a no.
    pub is_question: bool,
}

impl Row {
    /// The version of symbols that all generations of the providers' ABI have.
    pub const PRIVATE: &'static str = "IBVERBS_PRIVATE";

    /// Its name without that of its library, as functions for tables have it: `post_send`.
    pub fn short_name(&self) -> &'static str {
        self.name.strip_prefix("ibv_").unwrap_or(self.name)
    }

    const fn new(answer: Answer, version: &'static str) -> Row {
        Row {
            name: "",
            family: Family::Verbs,
            symbol: "",
            version,
            has_first_version: false,
            is_refused: false,
            answer,
            act: Act::Ask,
            on: Object::Process,
            page: OWN,
            errnos: None,
            instead: "",
            is_question: false,
        }
    }

    pub(crate) const fn named(mut self, name: &'static str, family: Family) -> Row {
        (self.name, self.family) = (name, family);
        if self.symbol.is_empty() {
            self.symbol = name;
        }
        if matches!(self.page.as_bytes(), b"=") {
            self.page = name;
        }
        self
    }

    const fn does(mut self, act: Act, on: Object) -> Row {
        (self.act, self.on) = (act, on);
        self
    }

    pub(crate) const fn symbol(mut self, symbol: &'static str) -> Row {
        self.symbol = symbol;
        self
    }

    pub(crate) const fn first(mut self) -> Row {
        self.has_first_version = true;
        self
    }

    pub(crate) const fn refused(mut self) -> Row {
        self.is_refused = true;
        self
    }

    pub(crate) const fn page(mut self, page: &'static str) -> Row {
        self.page = page;
        self
    }

    pub(crate) const fn no_page(self) -> Row {
        self.page("")
    }

    /// Of the providers: programs do not call it, and it is refused.
    pub(crate) const fn hidden(self) -> Row {
        self.no_page().refused()
    }

    pub(crate) const fn fails(mut self, errnos: Errnos) -> Row {
        self.errnos = Some(errnos);
        self
    }

    /// A vendor's call, which is refused: what serves in its place.
    pub(crate) const fn instead(mut self, instead: &'static str) -> Row {
        self.instead = instead;
        self.no_page().refused()
    }

    /// A vendor's call that answers on devices that look like the vendor's: what serves on others.
    pub(crate) const fn on_face(mut self, instead: &'static str) -> Row {
        self.instead = instead;
        self.no_page()
    }

    pub(crate) const fn question(mut self) -> Row {
        self.is_question = true;
        self
    }

    pub(crate) const fn makes(self, object: Object, of: Object) -> Row {
        self.does(Act::Make(object), of)
    }

    pub(crate) const fn gives_back(self, object: Object) -> Row {
        self.does(Act::GiveBack, object)
    }

    pub(crate) const fn changes(self, object: Object) -> Row {
        self.does(Act::Change, object)
    }

    pub(crate) const fn asks(self, object: Object) -> Row {
        self.does(Act::Ask, object)
    }

    pub(crate) const fn says(self) -> Row {
        self.does(Act::Say, Object::Process)
    }

    pub(crate) const fn listens(self, object: Object) -> Row {
        self.does(Act::Listen, object)
    }

    pub(crate) const fn waits(self, object: Object) -> Row {
        self.does(Act::Wait, object)
    }

    pub(crate) const fn acknowledges(self, object: Object) -> Row {
        self.does(Act::Acknowledge, object)
    }

    pub(crate) const fn builds(self, object: Object) -> Row {
        self.does(Act::Build, object)
    }

    pub(crate) const fn posts(self, object: Object) -> Row {
        self.does(Act::Post, object)
    }

    pub(crate) const fn polls(self, object: Object) -> Row {
        self.does(Act::Poll, object)
    }

    pub(crate) const fn arms(self, object: Object) -> Row {
        self.does(Act::Arm, object)
    }

    pub(crate) const fn moves(self, object: Object) -> Row {
        self.does(Act::Move, object)
    }
}

/// The page of a call that has one of its own.
const OWN: &str = "=";

/// The version of calls that are inline in a header.
pub(crate) const INLINE: &str = "";

pub(crate) const fn errno(version: &'static str) -> Row {
    Row::new(Answer::Errno, version)
}

pub(crate) const fn negative(version: &'static str) -> Row {
    Row::new(Answer::Negative, version)
}

pub(crate) const fn minus(version: &'static str) -> Row {
    Row::new(Answer::MinusOne, version)
}

pub(crate) const fn null(version: &'static str) -> Row {
    Row::new(Answer::Null, version)
}

pub(crate) const fn plain(version: &'static str) -> Row {
    Row::new(Answer::Plain, version)
}

//! The calls of rsockets, which librdmacm has. They behave as those of sockets do.

use crate::row::CallFamily;

pub(crate) const FAMILY: CallFamily = CallFamily::Sockets;
pub(crate) const V1_0: &str = "RDMACM_1.0";
pub(crate) const V1_5: &str = "RDMACM_1.5";

macro_rules! rows {
    ($then:ident $left:tt $($rows:tt)*) => { $then! { $left $($rows)* sockets {
        rsocket: minus(V1_0).creates(Socket, Process).fails(SOCKET),
        rbind: minus(V1_0).changes(Socket).page("rsocket").fails(BIND),
        rlisten: minus(V1_0).listens(Socket).page("rsocket").fails(LISTEN),
        raccept: minus(V1_0).creates(Socket, Socket).page("rsocket").fails(ACCEPT),
        rconnect: minus(V1_0).changes(Socket).page("rsocket").fails(CONNECT_SOCKET),
        rshutdown: minus(V1_0).changes(Socket).page("rsocket").fails(SHUTDOWN),
        rclose: minus(V1_0).destroys(Socket).page("rsocket").fails(CLOSE),
        rgetpeername: minus(V1_0).queries(Socket).page("rsocket").fails(NAME),
        rgetsockname: minus(V1_0).queries(Socket).page("rsocket").fails(NAME),
        rsetsockopt: minus(V1_0).changes(Socket).page("rsocket").fails(OPTION),
        rgetsockopt: minus(V1_0).queries(Socket).page("rsocket").fails(OPTION),
        rfcntl: minus(V1_0).changes(Socket).page("rsocket").fails(FILE_FLAGS),
        riomap: minus(V1_0).creates(Mapping, Socket).page("rsocket").fails(MAP),
        riounmap: minus(V1_0).destroys(Mapping).page("rsocket").fails(MAP),

        rrecv: minus(V1_0).transfers(Socket).page("rsocket").fails(RECEIVE),
        rrecvfrom: minus(V1_0).transfers(Socket).page("rsocket").fails(RECEIVE),
        rrecvmsg: minus(V1_0).transfers(Socket).page("rsocket").fails(RECEIVE),
        rread: minus(V1_0).transfers(Socket).page("rsocket").fails(RECEIVE),
        rreadv: minus(V1_0).transfers(Socket).page("rsocket").fails(RECEIVE),
        rsend: minus(V1_0).transfers(Socket).page("rsocket").fails(SEND),
        rsendto: minus(V1_0).transfers(Socket).page("rsocket").fails(SEND),
        rsendmsg: minus(V1_0).transfers(Socket).page("rsocket").fails(SEND),
        rwrite: minus(V1_0).transfers(Socket).page("rsocket").fails(SEND),
        rwritev: minus(V1_0).transfers(Socket).page("rsocket").fails(SEND),
        riowrite: minus(V1_0).transfers(Socket).page("rsocket").fails(SEND),

        rpoll: minus(V1_0).polls(Socket).page("rsocket").fails(WAIT_SOCKETS),
        rselect: minus(V1_0).polls(Socket).page("rsocket").fails(WAIT_SOCKETS),
        repoll_create: minus(V1_5).creates(Poller, Process).no_page().fails(EPOLL),
        repoll_ctl: minus(V1_5).changes(Poller).no_page().fails(EPOLL_CONTROL),
        repoll_wait: minus(V1_5).polls(Poller).no_page().fails(WAIT_SOCKETS),
    } } };
}
pub(crate) use rows;

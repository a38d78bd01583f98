//! Requests of a session to its server.

use super::run::Session;
use crate::control::{ClientRequest, ReceiveTotals, Reply, Round, unexpected};
use crate::error::Result;
use crate::pattern::Tag;

impl Session {
    pub(super) fn tags(&mut self, count: u64) -> Tag {
        let first = self.next_tag;
        self.next_tag += count;
        first
    }

    pub(super) fn start(&mut self, round: Round) -> Result<()> {
        match self.control.request_reply(&ClientRequest::Start(round))? {
            Reply::Started => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn stop(&mut self, sent: u64) -> Result<ReceiveTotals> {
        match self.control.request_reply(&ClientRequest::Stop { sent })? {
            Reply::Stopped(served) => Ok(served),
            other => Err(unexpected(&other)),
        }
    }

    pub(super) fn fill_peer(&mut self, first: Tag, count: u64) -> Result<()> {
        self.confirm(&ClientRequest::Fill { tags: (first..first + count).collect() })
    }

    pub(super) fn check_peer(&mut self, first: Tag, count: u64) -> Result<()> {
        self.confirm(&ClientRequest::Check { tags: (first..first + count).collect() })
    }

    pub(super) fn confirm(&mut self, request: &ClientRequest) -> Result<()> {
        match self.control.request_reply(request)? {
            Reply::Checked | Reply::Filled => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

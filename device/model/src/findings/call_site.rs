//! The call sites in programs that findings are about.

use std::fmt;

/// A frame of a call stack, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// The name of the function.
    pub function: Option<String>,
    /// The source file of the function.
    pub file: Option<String>,
    /// The line of the call, from 1.
    pub line: Option<u32>,
    /// The program or library that contains the function; empty if only a text is known.
    pub object: String,
    /// The offset in that object, in bytes.
    pub offset: u64,
}

impl fmt::Display for Frame {
    /// Writes the frame as in "main (server.c:42)", "main (server+0x40)" and "server+0x40".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { function, file, line, object, offset } = self;
        let object = object.rsplit('/').next().unwrap_or_default();
        match (function.as_deref(), file, line) {
            (function, Some(file), Some(line)) => {
                write!(f, "{} ({file}:{line})", function.unwrap_or("?"))
            }
            (Some(text), _, _) if object.is_empty() => f.write_str(text),
            (Some(function), _, _) => write!(f, "{function} ({object}+{offset:#x})"),
            (None, _, _) => write!(f, "{object}+{offset:#x}"),
        }
    }
}

/// A call site of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSite {
    /// A sentence about the call, as in "completion queue 0 was made here"; empty if the finding says it.
    pub what: String,
    /// The frames of the call stack, the innermost first; empty if it is not known.
    pub frames: Vec<Frame>,
}

impl CallSite {
    /// Returns a site of which only a text is known, as in "ibv_create_qp 1".
    pub fn of_text(what: impl Into<String>, text: impl Into<String>) -> CallSite {
        let frame = Frame { function: Some(text.into()), ..Frame::default() };
        CallSite { what: what.into(), frames: vec![frame] }
    }

    /// Reports whether the call stack is unknown.
    pub fn is_unknown(&self) -> bool {
        self.frames.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_say_what_is_known_of_them() {
        let whole = Frame {
            function: Some("main".to_owned()),
            file: Some("/src/a b.c".to_owned()),
            line: Some(7),
            object: "/bin/server".to_owned(),
            offset: 0x40,
        };
        assert_eq!(whole.to_string(), "main (/src/a b.c:7)");
        assert_eq!(Frame { function: None, ..whole.clone() }.to_string(), "? (/src/a b.c:7)");
        assert_eq!(Frame { line: None, ..whole.clone() }.to_string(), "main (server+0x40)");
        assert_eq!(Frame { line: None, function: None, ..whole }.to_string(), "server+0x40");
        let site = CallSite::of_text("it was made here", "ibv_create_qp 1");
        assert_eq!(site.frames[0].to_string(), "ibv_create_qp 1");
        assert!(!site.is_unknown() && CallSite::default().is_unknown());
    }
}

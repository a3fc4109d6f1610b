//! How a back end parses kernel arguments, and which of them a boot loader would not pass on unchanged. Pure.
//!
//! Not here: what a plan does with it (see `plan::os`).
//!
//! Sources: bootparam(7), <https://docs.kernel.org/admin-guide/kernel-parameters.html>.

/// How a back end takes kernel arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArgumentRules {
    /// How they are read.
    pub syntax: ArgumentSyntax,
    /// The longest command line in bytes. The kernel drops what comes after. `None`: there is no such limit.
    pub longest: Option<usize>,
    /// The arguments that configs set and the host did not have itself. Only these may be removed. `None`: unknown, so
    /// the old config decides.
    pub own: Option<Vec<String>>,
}

/// How a boot loader reads the kernel arguments that it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentSyntax {
    /// Each argument arrives as it was given.
    #[default]
    Exact,
    /// One line, of which the kernel itself splits the arguments.
    Line,
    /// GRUB's script language, and before it a shell's: both would read some characters themselves.
    Grub,
}

/// The characters that a shell reads inside of double quotes, or that GRUB's script language reads.
const GRUB_READS: [char; 13] = ['"', '\'', '\\', '$', '`', ';', '&', '|', '<', '>', '{', '}', ' '];

impl ArgumentSyntax {
    /// Why an argument would not arrive as it was written. `None`: it would.
    #[must_use]
    pub fn refusal(self, argument: &str) -> Option<String> {
        if self == Self::Exact {
            return None;
        }
        if let Some(c) = argument.chars().find(|c| c.is_control()) {
            return Some(format!("it holds the control character {c:?}"));
        }
        match self {
            Self::Exact => None,
            Self::Line => {
                if argument.matches('"').count() % 2 == 1 {
                    return Some(
                        "a double quote in it is not closed, so the kernel would join it with the next one"
                            .to_owned(),
                    );
                }
                // kernel-install writes one space instead.
                argument
                    .contains("  ")
                    .then(|| "it holds several spaces in a row, of which one would be left".to_owned())
            }
            Self::Grub => {
                let c = argument.chars().find(|c| GRUB_READS.contains(c) || !c.is_ascii())?;
                Some(format!("it holds {c:?}, which GRUB would read itself"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_boot_loader_would_split_or_read_is_refused() {
        use ArgumentSyntax::{Exact, Grub, Line};
        for (argument, exact, line, grub) in [
            ("isolcpus=managed_irq,domain,1-3,5", true, true, true),
            ("ip=[fd00::1]::[fd00::2]:64:n1:eth0:none", true, true, true),
            ("systemd.unit=multi-user.target", true, true, true),
            ("dyndbg=\"file ec.c +p\"", true, true, false),
            ("dyndbg=\"file  ec.c\"", true, false, false),
            ("x=\"open", true, false, false),
            ("x=$HOME", true, true, false),
            ("x=a;b", true, true, false),
            ("x={a}", true, true, false),
            ("x=\\n", true, true, false),
            ("x=é", true, true, false),
            ("x=\u{b}", true, false, false),
        ] {
            for (syntax, fine) in [(Exact, exact), (Line, line), (Grub, grub)] {
                assert_eq!(syntax.refusal(argument).is_none(), fine, "{argument} {syntax:?}");
            }
        }
    }
}

//! Fake programs, for those that are in no registry of Debian: they replay a recorded conversation, and take no other
//! program, no other argument and no other order. For tests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::system::programs::{Output, ProgramError, Programs};
use crate::system::pull::Pull;

/// What a command does to the host before it answers.
struct Effect(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Effect")
    }
}

/// What is expected next, and what is answered.
#[derive(Debug)]
struct ExpectedCommand {
    command: String,
    effect: Option<Effect>,
    answer: Result<String, String>,
}

/// The fakes. Clones share the conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakePrograms(Arc<Mutex<VecDeque<ExpectedCommand>>>);

impl FakePrograms {
    /// Expects this command, with its words separated by one space, and answers with this text.
    pub(crate) fn says(&self, command: &str, text: impl Into<String>) -> &Self {
        self.expect(command, None, Ok(text.into()))
    }

    /// As [`FakePrograms::says`], after this has happened on the host.
    pub(crate) fn says_meanwhile(
        &self,
        command: &str,
        text: &str,
        effect: impl FnOnce() + Send + 'static,
    ) -> &Self {
        self.expect(command, Some(Effect(Box::new(effect))), Ok(text.to_owned()))
    }

    /// As [`FakePrograms::fails`], after this has happened on the host.
    pub(crate) fn fails_meanwhile(
        &self,
        command: &str,
        why: &str,
        effect: impl FnOnce() + Send + 'static,
    ) -> &Self {
        self.expect(command, Some(Effect(Box::new(effect))), Err(why.to_owned()))
    }

    fn expect(&self, command: &str, effect: Option<Effect>, answer: Result<String, String>) -> &Self {
        let turn = ExpectedCommand { command: command.to_owned(), effect, answer };
        self.0.lock().unwrap().push_back(turn);
        self
    }

    /// Expects this command and fails.
    pub(crate) fn fails(&self, command: &str, why: &str) -> &Self {
        self.expect(command, None, Err(why.to_owned()))
    }

    /// The conversation must be at its end.
    pub(crate) fn done(&self) {
        let left = self.0.lock().unwrap();
        assert!(left.is_empty(), "these commands were not given: {left:?}");
    }
}

impl Programs for FakePrograms {
    fn run(&mut self, program: &str, args: &[&str], _: Duration) -> Result<Output, ProgramError> {
        let command = [&[program], args].concat().join(" ");
        let turn = self.0.lock().unwrap().pop_front();
        let Some(turn) = turn else { panic!("nothing was expected, but {command}") };
        assert_eq!(command, turn.command);
        if let Some(Effect(effect)) = turn.effect {
            effect();
        }
        let fail = |why| ProgramError { program: program.to_owned(), why };
        turn.answer.map(|text| Output { text }).map_err(fail)
    }

    /// A variable of the environment is expected in front of the command, as `env NAME=VALUE COMMAND`.
    fn fetch(
        &mut self,
        program: &str,
        args: &[&str],
        limit: Duration,
        environment: &[(String, String)],
        pull: &Pull,
    ) -> Result<Output, ProgramError> {
        let mut words: Vec<String> =
            environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        words.push(program.to_owned());
        words.extend(args.iter().map(|arg| (*arg).to_owned()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let done = match environment {
            [] => self.run(program, args, limit),
            _ => self.run("env", &words, limit),
        };
        done.inspect(|output| pull.take_output(output.text.as_bytes()))
    }
}

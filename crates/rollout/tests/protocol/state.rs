//! A state: the contents of the Nodes and the pool, what the controllers have seen of them, and the patches on their
//! way.
//!
//! What it is not: which state follows (see `model.rs`).

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum St {
    Done,
    Working,
    Degraded,
    /// Somebody has changed files that its daemon manages; only another config repairs that.
    Drifted,
}

/// The contents of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) cur: u8,
    pub(crate) des: u8,
    pub(crate) st: St,
    pub(crate) ready: bool,
}

impl Node {
    pub(crate) fn done(self) -> bool {
        self.cur == self.des && self.st == St::Done && self.ready
    }

    pub(crate) fn failing(self) -> bool {
        self.cur != self.des && matches!(self.st, St::Degraded | St::Drifted)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pool {
    pub(crate) target: u8,
    pub(crate) paused: bool,
}

/// A patch in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Flight {
    pub(crate) node: u8,
    /// The config to move to.
    pub(crate) des: u8,
    /// Whether the version that it is bound to is still the node's.
    pub(crate) valid: bool,
    /// Whether it was sent before, without an answer.
    pub(crate) again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Controller {
    pub(crate) pool: Pool,
    /// For each node, which of its versions is in the cache.
    pub(crate) at: Vec<u8>,
    /// The patches that it waits for: nothing is planned before each is answered.
    pub(crate) flight: Vec<Flight>,
    /// Nodes that have not changed since its term began: an earlier leader's patches may still apply to them.
    pub(crate) exposed: Vec<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) pool: Pool,
    /// For each node the versions that something may still see, oldest first; the last one is the present state.
    pub(crate) logs: Vec<Vec<Node>>,
    /// What each daemon is applying.
    pub(crate) work: Vec<u8>,
    /// Nodes that were seen failing at something other than the target: they gave up their slot.
    pub(crate) freed: Vec<bool>,
    pub(crate) controllers: Vec<Controller>,
    /// Patches whose sender does not wait for them any more, or that it has sent once more: they arrive at some time, or
    /// never.
    pub(crate) late: Vec<Flight>,
    /// How many more times people change the pool.
    pub(crate) edits: u8,
    /// How many more nodes are lost for a while although nobody asked anything of them.
    pub(crate) outages: u8,
    /// How many more nodes drift.
    pub(crate) drifts: u8,
}

impl State {
    pub(crate) fn node(&self, i: usize) -> Node {
        *self.logs[i].last().unwrap()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        (0..self.logs.len()).map(|i| self.node(i))
    }

    pub(crate) fn newest(&self, i: usize) -> u8 {
        self.logs[i].len() as u8 - 1
    }

    pub(crate) fn cached(&self, c: usize, i: usize) -> Node {
        self.logs[i][self.controllers[c].at[i] as usize]
    }

    /// Nodes that were lost by themselves or drifted are no violation: [`Model::plan`] checks whether plans take them
    /// into account.
    pub(crate) fn out_of_service(&self) -> usize {
        let lost = |n: Node| matches!(n.st, St::Done | St::Drifted) && n.cur == n.des;
        self.nodes().zip(&self.freed).filter(|(n, freed)| !n.done() && !lost(*n) && !**freed).count()
    }

    /// A Node has another version: patches that are bound to an older one are void.
    pub(crate) fn write(&mut self, i: usize, node: Node) {
        self.logs[i].push(node);
        let flights = self.controllers.iter_mut().flat_map(|c| &mut c.flight).chain(&mut self.late);
        flights.filter(|f| f.node as usize == i).for_each(|f| f.valid = false);
    }

    /// The API server takes a patch, or answers 409.
    pub(crate) fn arrive(&mut self, f: Flight) {
        let i = f.node as usize;
        if f.valid {
            let node = self.node(i);
            // One that failed anew after it had given up its slot is out already: it is sent back without one.
            self.freed[i] &= node.st == St::Degraded && !node.ready;
            self.write(i, Node { des: f.des, ..node });
        }
    }

    /// A controller has read the node as it is on the API server.
    pub(crate) fn read(&mut self, c: usize, i: usize) {
        let newest = self.newest(i);
        self.see(c, i, newest);
    }

    pub(crate) fn see(&mut self, c: usize, i: usize, version: u8) {
        let own = &mut self.controllers[c];
        own.exposed[i] &= own.at[i] == version;
        own.at[i] = version;
    }
}

/// The rule by which a failed node frees its slot: it was seen failing at what the pool, as it was seen, does not
/// want. It may try again by itself before it is sent elsewhere: then it is one more, as with the reference.
pub(crate) fn give_up_slots(s: &mut State) {
    for i in 0..s.logs.len() {
        let unwanted = |c: usize| {
            let node = s.cached(c, i);
            node.failing() && node.ready && node.des != s.controllers[c].pool.target
        };
        let node = s.node(i);
        if node.done() {
            s.freed[i] = false;
        } else if node.des != node.cur && (0..s.controllers.len()).any(unwanted) {
            s.freed[i] = true;
        }
    }
}

//! Updates what a recorded chain says about `/etc/shadow` to today. Each line of that file contains the day of its last
//! change (shadow(5)), so a recorded checksum matches on no other day. First the checksum is explained: it must follow
//! from the base's lines with the day of the recording. Only then is it replaced by the checksum of the same file with
//! the days of this machine.
//!
//! The check is not weakened: a password, a user or a mode that differs still differs.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The user whose password the chains change.
const USER: &str = "core";
/// The file's path, as in the chains.
const FILE: &str = "/etc/shadow";
/// Password fields that no config sets: that of a user without password, and the lab's own.
const UNNAMED: [&str; 2] = ["*", "!"];
/// How many days may be between a recording and this machine's base, in either direction.
const SEARCH: i64 = 2000;

/// Updates the chain's `/etc/shadow` to `today`, on a machine whose file is initially `base`. Returns how many steps
/// were updated. A checksum that cannot be explained stays as it is.
pub(crate) fn restate(chain: &mut Value, base: &str, today: i64) -> usize {
    let passwords = passwords(chain);
    let steps = chain.get_mut("steps").and_then(Value::as_array_mut);
    let (mut day, mut count) = (None, 0);
    for step in steps.into_iter().flatten() {
        let Some(told) = step.pointer_mut("/expect/changed").and_then(|c| c.get_mut(FILE)) else { continue };
        let Some((rest, sum)) = told.as_str().and_then(|t| t.rsplit_once(' ')) else { continue };
        let Some((recorded, password)) = explain(sum, base, &passwords, day) else { continue };
        day = Some(recorded);
        *told = format!("{rest} {}", checksum(&file(base, None, password, today))).into();
        count += 1;
    }
    count
}

/// All values that the user's password field has during the chain.
fn passwords(chain: &Value) -> Vec<String> {
    let steps = chain["steps"].as_array().into_iter().flatten();
    let users = steps.flat_map(|s| s["spec"]["config"]["passwd"]["users"].as_array().into_iter().flatten());
    let named = users.filter_map(|u| u["passwordHash"].as_str());
    UNNAMED.into_iter().chain(named).map(str::to_owned).collect()
}

/// Finds the day of the recording and the user's password at that time. `day` is the one that explained an earlier
/// step.
fn explain<'a>(sum: &str, base: &str, passwords: &'a [String], day: Option<i64>) -> Option<(i64, &'a str)> {
    let about = base.lines().filter_map(|line| line.split(':').nth(2)?.parse::<i64>().ok()).max()?;
    let days = match day {
        Some(day) => day..=day,
        None => about - SEARCH..=about + SEARCH,
    };
    days.flat_map(|day| passwords.iter().map(move |p| (day, p.as_str())))
        .find(|(day, password)| checksum(&file(base, Some(*day), password, *day)) == sum)
}

/// The file with that password, set on day `changed`. With `all`, every other line gets that day; otherwise it keeps
/// its own.
fn file(base: &str, all: Option<i64>, password: &str, changed: i64) -> String {
    let line = |line: &str| {
        let mut fields: Vec<String> = line.split(':').map(str::to_owned).collect();
        let user = fields.first().is_some_and(|name| name == USER);
        if let Some(field) = fields.get_mut(1).filter(|_| user) {
            password.clone_into(field);
        }
        let day = if user { Some(changed) } else { all };
        if let (Some(field), Some(day)) = (fields.get_mut(2).filter(|f| !f.is_empty()), day) {
            *field = day.to_string();
        }
        fields.join(":") + "\n"
    };
    base.lines().map(line).collect()
}

/// A checksum as recordings have it: the first sixteen digits of SHA-256.
fn checksum(text: &str) -> String {
    api::formats::text::hex(Sha256::digest(text).iter().take(8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const BASE: &str = "root:*:20000:0:99999:7:::\nntp:!*:20000::::::\ncore:!:20000:0:99999:7:::\n";

    fn chain(text: &str, user: &Value) -> Value {
        let told = format!("file 0640 0:42 {} {}", text.len(), checksum(text));
        json!({"steps": [{
            "spec": {"config": {"passwd": {"users": [user]}}},
            "expect": {"changed": {FILE: told, "/etc/other": "absent"}},
        }]})
    }

    #[test]
    fn what_is_explained_is_said_for_today_and_the_rest_stays() {
        let then =
            |password: &str| BASE.replace("20000", "19500").replace("core:!", &format!("core:{password}"));
        let now = |password: &str| BASE.replace("core:!:20000", &format!("core:{password}:20100"));
        let named = json!({"name": "core", "passwordHash": "$6$a$b"});
        for (password, user) in [("*", &json!({"name": "core"})), ("$6$a$b", &named)] {
            let mut told = chain(&then(password), user);
            assert_eq!(restate(&mut told, BASE, 20100), 1, "{password}");
            assert_eq!(told, chain(&now(password), user));
        }
        // With another password or another user the checksum must remain different.
        for other in [then("$6$x$y"), then("*").replace("ntp", "xntp")] {
            let mut told = chain(&other, &named);
            let before = told.clone();
            assert_eq!(restate(&mut told, BASE, 20100), 0);
            assert_eq!(told, before);
        }
    }
}

//! A list in pages, so that neither side holds thousands of objects at once ([`Pages`], [`pages`]).
//!
//! The API server can continue a list for five to ten minutes, until the database drops the version that the first page shows. A
//! token that is older is refused (410), and that answer has another token, with which the list goes on from the same place in the
//! version of now. The pages before are then older than those after, as the lists of two kinds are:
//!
//! - An object comes once at most, since a list is in the order of names and a token says after which name it goes on.
//! - An object that is there all the time comes in any case, in the version of one of the pages' times.
//! - An object that is created or deleted meanwhile may come or not. So two objects may come that never existed at the same time.
//!
//! What it is not: the requests, and whether one that failed is sent again; nor a read that must show one version.
//!
//! Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks>

use crate::call::CallError;
use kube::api::ListParams;
use kube::core::ObjectList;

/// Objects in one page, if nothing else is asked for.
pub const PAGE: u32 = 500;

/// How far a list in pages has come: what the next request asks for, and what its answer means.
#[derive(Debug, Clone)]
pub struct Pages {
    /// `None`: the last page was read.
    next: Option<ListParams>,
    /// The last token was refused, and the next one is from that answer.
    was_refused: bool,
}

impl Pages {
    /// A list with these parameters. Their `limit` is the number of objects in one page; without one it is [`PAGE`].
    #[must_use]
    pub fn of(params: ListParams) -> Self {
        let limit = params.limit.or(Some(PAGE));
        Self { next: Some(ListParams { limit, ..params }), was_refused: false }
    }

    /// The parameters of the next request; `None` after the last page.
    #[must_use]
    pub fn next(&self) -> Option<ListParams> {
        self.next.clone()
    }

    /// Takes the answer to that request, and returns the objects in it. Where it says only how to go on, these are none.
    ///
    /// # Errors
    /// That of the answer. It is 410 if there is no token to go on with, or if it is refused, too. [`Pages::next`] is then as it was,
    /// so that the request may be sent again.
    pub fn take<K: Clone>(&mut self, answer: Result<ObjectList<K>, CallError>) -> Result<Vec<K>, CallError> {
        let (objects, token) = match answer {
            Ok(list) => {
                self.was_refused = false;
                (list.items, list.metadata.continue_.filter(|token| !token.is_empty()))
            }
            Err(error) => match token_to_go_on_with(&error) {
                Some(token) if !self.was_refused => {
                    self.was_refused = true;
                    (vec![], Some(token))
                }
                _ => return Err(error),
            },
        };
        self.next = self.next.take().zip(token).map(|(params, token)| params.continue_token(&token));
        Ok(objects)
    }
}

/// Goes through a list in pages. `page` makes one request, `each` gets every object.
///
/// # Errors
/// That of the first request that fails, as [`Pages::take`].
pub async fn pages<K: Clone, F>(
    params: ListParams,
    mut page: impl FnMut(ListParams) -> F,
    mut each: impl FnMut(K),
) -> Result<(), CallError>
where
    F: Future<Output = Result<ObjectList<K>, CallError>>,
{
    let mut pages = Pages::of(params);
    while let Some(params) = pages.next() {
        pages.take(page(params).await)?.into_iter().for_each(&mut each);
    }
    Ok(())
}

/// The token in the API server's answer that the one of the request is too old.
fn token_to_go_on_with(error: &CallError) -> Option<String> {
    let status = error.status().filter(|status| status.code == 410)?;
    status.metadata.as_ref()?.continue_.clone().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A page of a list of numbers. An empty token: the last one.
    fn numbers(items: &[u8], next: &str) -> Result<ObjectList<u8>, CallError> {
        Ok(serde_json::from_value(json!({"metadata": {"continue": next}, "items": items})).unwrap())
    }

    /// The API server refuses a request with this code, and gives this token.
    fn refused(code: u16, token: Option<&str>) -> Result<ObjectList<u8>, CallError> {
        let status = json!({"kind": "Status", "code": code, "message": "too old", "reason": "Expired",
            "metadata": {"continue": token}});
        let status = serde_json::from_value(status).unwrap();
        Err(CallError::Api { what: "list numbers".to_owned(), source: Box::new(kube::Error::Api(status)) })
    }

    /// What comes of these answers: the numbers, the tokens that were sent, and the code of the failure.
    fn read(
        answers: Vec<Result<ObjectList<u8>, CallError>>,
    ) -> (Vec<u8>, Vec<Option<String>>, Option<Option<u16>>) {
        let (mut asked, mut all, mut answers) = (vec![], vec![], answers.into_iter());
        let page = |params: ListParams| {
            assert_eq!(params.limit, Some(PAGE), "never all objects at once");
            asked.push(params.continue_token);
            std::future::ready(answers.next().unwrap())
        };
        let done = futures::executor::block_on(pages(ListParams::default(), page, |n| all.push(n)));
        assert_eq!(answers.count(), 0, "it ended too early");
        (all, asked, done.err().map(|error| error.code()))
    }

    #[test]
    fn each_page_of_a_list_is_requested_with_the_token_of_the_previous_one() {
        let answers = vec![numbers(&[1, 2], "x"), numbers(&[3], "y"), numbers(&[4], "")];
        let tokens = vec![None, Some("x".to_owned()), Some("y".to_owned())];
        assert_eq!(read(answers), (vec![1, 2, 3, 4], tokens, None));
        assert_eq!(read(vec![refused(500, None)]), (vec![], vec![None], Some(Some(500))));
    }

    #[test]
    fn a_list_goes_on_with_the_token_of_the_answer_that_its_own_is_too_old() {
        // Columns: the answers; which numbers and tokens follow, and the code of the failure.
        for (answers, numbers, tokens, code) in [
            // Twice in a long list.
            (
                vec![
                    numbers(&[1], "x"),
                    refused(410, Some("now")),
                    numbers(&[2], "y"),
                    refused(410, Some("later")),
                    numbers(&[3], ""),
                ],
                &[1, 2, 3][..],
                &["x", "now", "y", "later"][..],
                None,
            ),
            // There is none.
            (vec![numbers(&[1], "x"), refused(410, None)], &[1], &["x"], Some(Some(410))),
            (vec![numbers(&[1], "x"), refused(410, Some(""))], &[1], &["x"], Some(Some(410))),
            // It is refused, too.
            (
                vec![numbers(&[1], "x"), refused(410, Some("now")), refused(410, Some("now"))],
                &[1],
                &["x", "now"],
                Some(Some(410)),
            ),
            // Another failure.
            (vec![numbers(&[1], "x"), refused(500, Some("now"))], &[1], &["x"], Some(Some(500))),
        ] {
            let (all, asked, failed) = read(answers);
            let asked: Vec<&str> = asked.iter().flatten().map(String::as_str).collect();
            assert_eq!((&*all, &*asked, failed), (numbers, tokens, code));
        }
    }
}

// Signs somebody in who has a bearer token of the cluster. The token is sent once, and is not kept here.
// What it is not: the page itself.
const form = document.getElementById("form");
const token = document.getElementById("token");
const said = document.getElementById("said");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  said.textContent = "";
  try {
    const headers = { "x-mco-dashboard": "1", "content-type": "application/json" };
    const answer = await fetch("api/session", { method: "POST", credentials: "same-origin", headers, body: JSON.stringify({ token: token.value.trim() }) });
    if (answer.ok) {
      token.value = "";
      location.reload();
      return;
    }
    said.textContent = (await answer.json()).error;
  } catch {
    said.textContent = "the dashboard does not answer";
  }
});

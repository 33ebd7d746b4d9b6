// Light or dark: as the system asks, until somebody presses the button.

const theme = document.getElementById("theme");

function dark() {
  const asked = document.documentElement.dataset.theme;
  return asked ? asked === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function listenToTheme() {
  theme.setAttribute("aria-pressed", dark());
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    theme.setAttribute("aria-pressed", dark());
  });
}

"""Energy and delay of messages: wireless channels, wired links, what an interval costs and how long it takes."""

"""What a page says, read again from its HTML."""

import json
from html.parser import HTMLParser

from plotly.offline import get_plotlyjs


class Page(HTMLParser):
    """Elements, attributes and texts of a page."""

    def __init__(self, path):
        super().__init__()
        self.html = path.read_text()
        self.own = self.html.replace(get_plotlyjs(), "")  # what is ours of it
        self.elements = []
        self.texts = []
        self.feed(self.own)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append((self.elements[-1][0] if self.elements else "", data))

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)

    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    @property
    def words(self):
        return " ".join(" ".join(text for tag, text in self.texts if tag not in ("script", "style")).split())

    @property
    def data(self):
        start = self.html.index('id="report">') + len('id="report">')
        return json.loads(self.html[start : self.html.index("</script>", start)])

    def figure(self, key):
        return next(each for each in self.data["figures"] if each["key"] == key)

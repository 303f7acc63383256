"""What the driver knows of a program it measures."""
import dataclasses
import pathlib


@dataclasses.dataclass
class Tools:
    """What all measurements share."""
    gapless: pathlib.Path
    cache: pathlib.Path      # everything fetched, built and converted is below it
    lock: pathlib.Path = None
    threads: int = 2


class Peer:
    """One program on one file. Subclasses fetch and build in prepare(), which raises when it cannot be had here."""
    in_process = False
    environment = {}
    ready_path = "/health"
    start_seconds = 120
    model_name = "any"

    def __init__(self, name, weights):
        self.name, self.weights = name, weights  # as the table calls them
        self.version = ""
        self.path = None                         # of the model, once prepared

    def prepare(self, tools, model, path):
        """model: smollm2 or gemma3; path: its .gguf file."""
        raise NotImplementedError

    def command(self, cell, port):
        raise NotImplementedError


class Gapless(Peer):
    ready_path = "/ready"

    def __init__(self, flags=()):
        super().__init__("Gapless", "same file")
        self.flags, self.program = list(flags), None

    def prepare(self, tools, model, path):
        self.path, self.program = path, tools.gapless

    def command(self, cell, port):
        return [self.program, "serve", self.path, "--port", port, *self.flags]

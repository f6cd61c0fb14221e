"""What of vLLM's configuration decides which layers are custom, and the platform."""

CUSTOM_OPS = ["all"]
PLATFORM = "cpu"

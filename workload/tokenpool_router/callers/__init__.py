from dataclasses import dataclass
@dataclass
class Caller:
    name: str; weight: float=1.; priority: str="normal"
class Callers: ...

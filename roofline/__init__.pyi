from . import (
    diagnosis as diagnosis,
)
from . import (
    evidence as evidence,
)
from . import (
    kernels as kernels,
)
from . import (
    labs as labs,
)
from . import (
    measure as measure,
)
from . import (
    network as network,
)
from . import (
    serving as serving,
)
from . import (
    training as training,
)
from . import (
    validation as validation,
)
from . import (
    xla as xla,
)
from .configurations import model as model
from .diagnosis import explain as explain
from .validation import scoreboard as scoreboard
from .xla import analyze as analyze

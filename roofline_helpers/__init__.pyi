from . import chips as chips
from . import measured as measured
from . import models as models
from . import pages as pages
from . import plot as plot
from . import roofline as roofline
from . import verdicts as verdicts
from . import work as work
from .chips import Chip as Chip
from .chips import all_chips as all_chips
from .chips import chip as chip
from .common.checks import BadType as BadType
from .common.checks import BadValue as BadValue
from .common.checks import RooflineError as RooflineError
from .common.checks import UnknownName as UnknownName
from .common.dtypes import BITS as BITS
from .common.dtypes import nbytes as nbytes
from .common.show import si as si
from .common.show import table as table
from .measured import judge as judge
from .roofline import Roofline as Roofline
from .verdicts import gain as gain
from .verdicts import verdict as verdict
from .work import Work as Work
from .work import fuse as fuse
from .work import total as total

__version__: str

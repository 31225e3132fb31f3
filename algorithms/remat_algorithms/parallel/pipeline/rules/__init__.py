"""x."""

from remat_algorithms.parallel.pipeline.rules.lists import *
from remat_algorithms.parallel.pipeline.rules.lists import Lists
from remat_algorithms.parallel.pipeline.rules.one_way import *
from remat_algorithms.parallel.pipeline.rules.two_way import *

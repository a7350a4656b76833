"""All optimizers of the legacy vocabulary. A new optimizer needs its own file and a line here."""

from estimator_emb.optimizers.adadelta import AdadeltaParameters as AdadeltaParameters
from estimator_emb.optimizers.adagrad import AdagradParameters as AdagradParameters
from estimator_emb.optimizers.adagrad_momentum import (
    AdagradMomentumParameters as AdagradMomentumParameters,
)
from estimator_emb.optimizers.adam import AdamParameters as AdamParameters
from estimator_emb.optimizers.centered_rmsprop import (
    CenteredRMSPropParameters as CenteredRMSPropParameters,
)
from estimator_emb.optimizers.frequency_estimator import (
    FrequencyEstimatorParameters as FrequencyEstimatorParameters,
)
from estimator_emb.optimizers.ftrl import FtrlParameters as FtrlParameters
from estimator_emb.optimizers.momentum import MomentumParameters as MomentumParameters
from estimator_emb.optimizers.proximal_adagrad import (
    ProximalAdagradParameters as ProximalAdagradParameters,
)
from estimator_emb.optimizers.proximal_yogi import ProximalYogiParameters as ProximalYogiParameters
from estimator_emb.optimizers.rmsprop import RMSPropParameters as RMSPropParameters
from estimator_emb.optimizers.sgd import (
    StochasticGradientDescentParameters as StochasticGradientDescentParameters,
)

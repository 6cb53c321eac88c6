"""The file that `apical study new` writes: a study of the user's own that runs as it stands."""

TEMPLATE = """\
# A study of your own. It runs as it stands:  apical study run THIS-FILE
# Every field is described by the schema:     apical study schema -o study.schema.json

title = "My networks with five kinds of neurons"

# Trials of the setting that validation chooses; the best of them gives the table's number, all of them the mean.
trials = 5

# Values to try of every unit that has the parameter; "learn" lets training find alpha.
tune.alpha = [0.1, 0.3, 1.0, "learn"]

# Training settings of all parts. Others: optimiser, milestones, decay, l2, clip, loss, metric, precision, augment.
training = { epochs = 10, batch = 64, learning_rate = 1e-3 }

# Modules of your own that call apical.register_unit or apical.models.register:
# imports = ["mypackage.units"]

# A part is one condition: data and network. There may be several; every row is trained in each.
[[parts]]
name = "digits"
title = "MLP on digits"
# A name from `apical data list`, or the path of a folder of class folders, a .csv or an .npz file.
data = "digits"
# A name from `apical.models.list()`, or a function of your own: "mypackage.networks:factory".
model = "mlp-1"
dims = { hidden = 32 }
# corruptions = ["input-noise(sigma=0.3)"]

# A row is one unit. Rows of one group are compared with its baseline: relu, leaky-relu or pynrelu.
[[rows]]
unit = "relu"

[[rows]]
unit = "ada"

[[rows]]
unit = "pynrelu"

[[rows]]
unit = "pynada"

[[rows]]
unit = "leaky_pynada"
# This row's own values, instead of those above:
tune.alpha = [0.5]

# What `--quick` does.
[quick]
trials = 2
training = { epochs = 2 }
"""

"""What the compiler makes of the model for TPUs that no one here owns."""

import model
import shapes


def test_train_step(roofline):
    roofline(model.train_step, shapes.LAYERS, shapes.TOKENS, shapes.TOKENS, chip="v6e")


def test_attention(roofline):
    roofline(model.attention, shapes.ATTENTION, shapes.SEQUENCES, chip="v6e")


def test_append(roofline):
    args = shapes.CACHE, shapes.ROW, shapes.POSITION
    roofline(model.append, *args, chip="v6e", hbm_bytes="<= 64 kB", memory="<= 70 MB", fits=True)
    roofline(model.append, *args, chip="v6e")


def test_sharded_layer(roofline):
    args = shapes.SHARDED, shapes.SHARDED_TOKENS
    where = {"chip": "v5p", "topology": "2x2x4"}
    report = roofline(model.sharded_layer, *args, **where)
    roofline(model.sharded_layer, *args, **where, exposed="<= 35%", seconds="<= 500 us")
    assert [exchange.collective.kind for exchange in report.exchanges] == ["all-reduce"]
